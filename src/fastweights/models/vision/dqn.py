"""The convolutional network of DQN."""

from torch import nn

from fastweights.errors import require

LAYERS = ((32, 8, 4), (64, 4, 2), (64, 3, 1))
"""Channels, side of a kernel and stride."""
LEAST = 36
"""Pixels of a side of which the last convolution sees one place."""


class Dqn(nn.Sequential):
    """x <- relu(conv(x)) three times, then relu(W x + b).

    A sixth of the arithmetic of `Impala`.

    Source: Mnih et al. 2015, Methods (Model architecture), with 512 features.

    Args:
        channels: Of the pictures.
        side: Pixels of a side.
        features: How many numbers a picture becomes.

    Raises:
        InputError: `side` is below 36.
    """

    def __init__(self, channels: int, side: int, features: int = 256) -> None:
        require(side >= LEAST, "side", f"at least {LEAST}", side)
        stages: list[nn.Module] = []
        for width, kernel, stride in LAYERS:
            stages += [nn.Conv2d(channels, width, kernel, stride), nn.ReLU()]
            channels, side = width, (side - kernel) // stride + 1
        super().__init__(*stages, nn.Flatten(), nn.Linear(channels * side**2, features), nn.ReLU())
        self.features = features
