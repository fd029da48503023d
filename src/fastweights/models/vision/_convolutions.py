"""Base classes of vision encoders: channels-last layers, and convolutions followed by one linear layer."""

from math import sqrt
from typing import ClassVar

import torch
from torch import Tensor, nn

from fastweights.core.arguments import Size, checked
from fastweights.core.errors import require
from fastweights.layers.base.initialise import change_initial


class ChannelsLast(nn.Sequential):
    """A sequence of layers for images in the channels-last memory format.

    Convolutions, normalisation and pooling preserve that format. On a CPU a training step takes from a half (`Conv4`)
    to five sixths (`Dqn`, `Res12`) of the time.
    """

    def forward(self, images: Tensor) -> Tensor:
        """Maps images `[n, channels, side, side]` to the output of the last layer."""
        # A copy, since images with one channel count as both formats, and would be read in the slow one.
        outputs: Tensor = super().forward(images.clone(memory_format=torch.channels_last))
        return outputs


class Convolutions(ChannelsLast):
    """x <- relu(conv(x)) for every entry of LAYERS, then relu(W x + b).

    Initial weights are orthogonal with a gain of sqrt(2), and biases 0 (Saxe et al. 2014). So features are as large as
    pixels; with PyTorch's initialisation they would be a tenth of that.

    Args:
        channels: Number of channels of the images.
        side: Height and width of the images in pixels.
        features: Number of features per image.

    Raises:
        InputError: `side` is too small for the last convolution.
    """

    LAYERS: ClassVar[tuple[tuple[int, int, int], ...]]
    """Channels, side of a kernel and stride."""

    @checked
    def __init__(self, channels: Size, side: Size, features: Size = 256) -> None:
        least = self._min_side()
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
    def _min_side(cls) -> int:
        """Smallest side, for which the output of the last convolution has one pixel."""
        side = 1
        for _, kernel, stride in reversed(cls.LAYERS):
            side = (side - 1) * stride + kernel
        return side


def _orthogonal(module: nn.Conv2d | nn.Linear) -> None:
    nn.init.orthogonal_(module.weight, sqrt(2))
    nn.init.zeros_(module.bias)  # type: ignore[arg-type]
