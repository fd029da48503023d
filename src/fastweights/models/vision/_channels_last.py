"""How pictures lie in memory while a vision net looks at them."""

import torch
from torch import Tensor, nn


class ChannelsLast(nn.Sequential):
    """Layers one after another, for pictures whose channels lie side by side.

    Convolutions, normalisation and pooling keep that order. On a CPU an update takes from a half (`Conv4`) to five
    sixths (`Dqn`, `Res12`) of the time.
    """

    def forward(self, images: Tensor) -> Tensor:
        """Pictures `[n, channels, side, side]` -> what the last layer says of them."""
        # A copy, since pictures with one channel count as being in either order, and are then read in the slow one.
        said: Tensor = super().forward(images.clone(memory_format=torch.channels_last))
        return said
