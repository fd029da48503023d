"""A convolutional network on the glimpses that a memory sees one by one."""

from torch import Tensor, nn

from fastweights.core.arguments import Size, checked
from fastweights.core.errors import require

QUADRANTS, GLIMPSES = 4, 6
"""Quadrants of an image, and glimpses of a quadrant."""


class GlimpseNetwork(nn.Module):
    """h_g = relu(W_1 x_g), h_q = relu(W_2 [h_g of q]), h = relu(W_3 [h_q]), y = W h: a convolutional network.

    One map for all glimpses g, one for all quadrants q of six glimpses, one for the image of four quadrants, each with
    a bias. With two layers there are no quadrants: h = relu(W_2 [h_g of all glimpses]). Strides equal the widths of
    the filters, so that each layer reads every unit below it once, as the recurrent networks read every glimpse once.

    Source: the baselines of Ba et al. 2016: three layers on the same patches in Sec. 4.2, two layers with 12 x 12
    receptive fields in Sec. 4.3. The paper describes no more of them; strides and sharing are our reading.

    Args:
        kind: "features".
        input_size: Pixels of a glimpse.
        output_size: Number of classes.
        features: Units of every layer.
        layers: Number of layers in front of the output, 2 or 3.
    """

    @checked
    def __init__(self, kind: str, input_size: Size, output_size: Size, features: Size, layers: Size = 3) -> None:
        super().__init__()
        require(kind == "features", "kind", "'features', the pixels of glimpses", repr(kind))
        require(layers in (2, 3), "layers", "2 or 3", layers)
        parts = QUADRANTS if layers == 3 else QUADRANTS * GLIMPSES
        self.glimpse = nn.Sequential(nn.Linear(input_size, features), nn.ReLU())
        self.quadrant = nn.Sequential(nn.Linear(GLIMPSES * features, features), nn.ReLU()) if layers == 3 else None
        self.image = nn.Sequential(nn.Linear(parts * features, features), nn.ReLU())
        self.head = nn.Linear(features, output_size)

    def forward(self, inputs: Tensor, answers: int) -> Tensor:
        """Glimpses `[B, 24, pixels]` -> outputs `[B, 1, output_size]`; there is one question, about the image."""
        parts = self.glimpse(inputs)
        if self.quadrant is not None:
            parts = self.quadrant(parts.flatten(1).unflatten(1, (QUADRANTS, -1)))
        outputs: Tensor = self.head(self.image(parts.flatten(1)))
        return outputs.unsqueeze(1)
