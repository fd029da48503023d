"""Four residual blocks of three convolutions."""

from collections.abc import Sequence

from torch import Tensor, nn

from fastweights.core.arguments import Probability, Size, checked
from fastweights.layers.base.initialise import change_initial
from fastweights.models.dropout import Dropout
from fastweights.models.vision._convolutions import ChannelsLast

WIDTHS = (64, 96, 128, 256)
"""Channels of the blocks."""


class Res12(ChannelsLast):
    """x <- dropout(maxpool(lrelu(F(x) + BN(conv1(x))))), four times, and the mean of each channel.

    F is three convolutions of 3 x 3 with BN, and leaky ReLU between them.

    Source: Chen et al. 2021 with the channels of Mishra et al. 2018; Irie et al. 2022, Appendix B.

    Args:
        channels: Number of channels of the images.
        side: Height and width of the images in pixels.
        dropout: Dropout probability after each block.
        widths: Channels of the blocks.
    """

    @checked
    def __init__(self, channels: Size, side: Size, dropout: Probability = 0.0, widths: Sequence[Size] = WIDTHS) -> None:
        pairs = zip([channels, *widths], widths, strict=False)
        super().__init__(*(ResidualBlock(before, after, dropout) for before, after in pairs))
        self.features = widths[-1]
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                change_initial(module, _he)

    def forward(self, images: Tensor) -> Tensor:
        """Maps images `[n, channels, side, side]` to `[n, features]`."""
        maps: Tensor = super().forward(images)
        return maps.mean((2, 3))


def _he(conv_size: nn.Conv2d) -> None:
    nn.init.kaiming_normal_(conv_size.weight, mode="fan_out", nonlinearity="leaky_relu")


class ResidualBlock(nn.Module):
    """dropout(maxpool(lrelu(F(x) + BN(conv1(x)))))"""

    @checked
    def __init__(self, channels: Size, width: Size, dropout: Probability) -> None:
        super().__init__()
        self.path = nn.Sequential(
            *(*_normed(channels, width, 3), nn.LeakyReLU(0.1)),
            *(*_normed(width, width, 3), nn.LeakyReLU(0.1)),
            *_normed(width, width, 3),
        )
        self.shortcut = nn.Sequential(*_normed(channels, width, 1))
        self.end = nn.Sequential(nn.LeakyReLU(0.1), nn.MaxPool2d(2), Dropout(dropout))

    def forward(self, x: Tensor) -> Tensor:
        """Maps `[n, channels, side, side]` to `[n, width, side / 2, side / 2]`."""
        y: Tensor = self.end(self.path(x) + self.shortcut(x))
        return y


def _normed(channels: int, width: int, size: int) -> list[nn.Module]:
    return [nn.Conv2d(channels, width, size, padding=size // 2, bias=False), nn.BatchNorm2d(width)]
