"""The convolutional network of IMPALA."""

from collections.abc import Sequence

from torch import Tensor, nn

from fastweights.core.arguments import Size, checked
from fastweights.models.vision._convolutions import ChannelsLast

WIDTHS = (16, 32, 32)
"""Channels of the stages."""


class Impala(ChannelsLast):
    """x <- R(R(maxpool(conv(x)))) three times, R(x) = x + conv(relu(conv(relu(x)))), then relu(W relu(x) + b).

    Source: Espeholt et al. 2018 (IMPALA), Fig. 3 on the right; Irie et al. 2021, Sec. 4.3.

    Args:
        channels: Number of channels of the images.
        side: Height and width of the images in pixels.
        features: Number of features per image.
        widths: Channels of the stages.
    """

    @checked
    def __init__(self, channels: Size, side: Size, features: Size = 256, widths: Sequence[Size] = WIDTHS) -> None:
        stages = [_stage(before, after) for before, after in zip([channels, *widths], widths, strict=False)]
        for _ in widths:
            side = (side + 1) // 2
        size = widths[-1] * side**2
        super().__init__(*stages, nn.ReLU(), nn.Flatten(), nn.Linear(size, features), nn.ReLU())
        self.features = features


class Residual(nn.Module):
    """x + conv(relu(conv(relu(x))))"""

    @checked
    def __init__(self, width: Size) -> None:
        super().__init__()
        convolutions = (nn.Conv2d(width, width, 3, padding=1) for _ in range(2))
        self.path = nn.Sequential(*(part for conv_size in convolutions for part in (nn.ReLU(), conv_size)))

    def forward(self, x: Tensor) -> Tensor:
        """Maps `[n, width, side, side]` to the same shape."""
        y: Tensor = x + self.path(x)
        return y


def _stage(channels: int, width: int) -> nn.Sequential:
    pool = nn.MaxPool2d(3, stride=2, padding=1)
    return nn.Sequential(nn.Conv2d(channels, width, 3, padding=1), pool, Residual(width), Residual(width))
