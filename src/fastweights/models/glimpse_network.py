"""A convolutional network over the glimpses that a memory reads one by one."""

from torch import Tensor, nn

from fastweights.core.arguments import Size, checked
from fastweights.core.errors import require

QUADRANTS, GLIMPSES = 4, 6
"""Quadrants of an image, and glimpses of a quadrant."""


class GlimpseNetwork(nn.Module):
    """Three layers of rectified linear units with shared weights: a glimpse, a quadrant of six, the image of four.

    It is a convolution whose strides equal its widths, so each layer reads every output of the one below once.
    Source: the baseline of Ba et al. 2016, Sec. 4.2. The paper only says that it has three layers and the same patches.

    Args:
        kind: "features".
        input_size: Number of pixels per glimpse.
        output_size: Number of classes.
        features: Number of units per layer.
    """

    @checked
    def __init__(self, kind: str, input_size: Size, output_size: Size, features: Size) -> None:
        super().__init__()
        require(kind == "features", "kind", "'features', the pixels of glimpses", repr(kind))
        self.glimpse = nn.Sequential(nn.Linear(input_size, features), nn.ReLU())
        self.quadrant = nn.Sequential(nn.Linear(GLIMPSES * features, features), nn.ReLU())
        self.image = nn.Sequential(nn.Linear(QUADRANTS * features, features), nn.ReLU())
        self.head = nn.Linear(features, output_size)

    def forward(self, inputs: Tensor, answers: int) -> Tensor:
        """Maps glimpses `[B, 24, pixels]` to outputs `[B, 1, output_size]` for the image."""
        quadrants = self.glimpse(inputs).flatten(1).unflatten(1, (QUADRANTS, -1))
        outputs: Tensor = self.head(self.image(self.quadrant(quadrants).flatten(1)))
        return outputs.unsqueeze(1)
