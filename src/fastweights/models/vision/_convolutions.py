"""Convolutions, then one layer for all that they see."""

from math import sqrt
from typing import ClassVar

from torch import nn

from fastweights.core.arguments import Size, checked
from fastweights.core.errors import require
from fastweights.layers.base.initialise import change_initial
from fastweights.models.vision._channels_last import ChannelsLast


class Convolutions(ChannelsLast):
    """x <- relu(conv(x)) for every entry of LAYERS, then relu(W x + b).

    Weights are orthogonal at first, with a gain of sqrt(2), and biases 0 (Saxe et al. 2014): features are as large as
    pixels, where PyTorch's own would be a tenth of that.

    Args:
        channels: Of the pictures.
        side: Pixels of a side.
        features: How many numbers a picture becomes.

    Raises:
        InputError: `side` is so small that the last convolution sees nothing.
    """

    LAYERS: ClassVar[tuple[tuple[int, int, int], ...]]
    """Channels, side of a kernel and stride."""

    @checked
    def __init__(self, channels: Size, side: Size, features: Size = 256) -> None:
        least = self._least()
        require(side >= least, "side", f"at least {least}", side)
        stages: list[nn.Module] = []
        for width, kernel, stride in self.LAYERS:
            stages += [nn.Conv2d(channels, width, kernel, stride), nn.ReLU()]
            channels, side = width, (side - kernel) // stride + 1
        super().__init__(*stages, nn.Flatten(), nn.Linear(channels * side**2, features), nn.ReLU())
        self.features = features
        for module in self:
            if isinstance(module, nn.Conv2d | nn.Linear):
                change_initial(module, _orthogonal)

    @classmethod
    def _least(cls) -> int:
        """Pixels of a side of which the last convolution sees one place."""
        side = 1
        for _, kernel, stride in reversed(cls.LAYERS):
            side = (side - 1) * stride + kernel
        return side


def _orthogonal(module: nn.Conv2d | nn.Linear) -> None:
    nn.init.orthogonal_(module.weight, sqrt(2))
    nn.init.zeros_(module.bias)  # type: ignore[arg-type]
