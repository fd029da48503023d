"""A convolutional network over the glimpses that a memory reads one by one."""

from torch import Tensor, nn

from fastweights.core.arguments import Size, checked
from fastweights.core.errors import require

QUADRANTS, GLIMPSES = 4, 6
"""Quadrants of an image, and glimpses of a quadrant."""


class GlimpseNetwork(nn.Module):
    """Convolutional baseline for image classification from glimpses.

        h_g = relu(W_1 x_g)
        h_q = relu(W_2 [h_g "of" q])
        h = relu(W_3 [h_q])
        y = W h

    All glimpses g share one map, and all quadrants q of six glimpses another. The image has four quadrants. Every map
    has a bias. With two layers there are no quadrants: h = relu(W_2 [h_g of all glimpses]). Strides equal the widths of
    the filters, so that each layer reads every unit below it once, as a recurrent network reads every glimpse once.

    Source: the baselines of Ba et al. 2016 (arXiv:1610.06258): three layers on the same patches in Sec. 4.2, two layers
    with 12 x 12 receptive fields in Sec. 4.3. The paper does not describe strides and weight sharing; these are our
    choice.

    Args:
        kind: Kind of inputs, "features".
        input_size: Number of pixels per glimpse.
        output_size: Number of classes.
        features: Number of units of every layer.
        num_layers: Number of layers in front of the output, 2 or 3.

    Raises:
        InputError: `kind` is not "features", or `num_layers` is neither 2 nor 3.

    Example:
        >>> import torch
        >>> model = GlimpseNetwork("features", input_size=49, output_size=10, features=16)
        >>> model(torch.randn(2, 24, 49), answers=1).shape
        torch.Size([2, 1, 10])
    """

    @checked
    def __init__(self, kind: str, input_size: Size, output_size: Size, features: Size, num_layers: Size = 3) -> None:
        super().__init__()
        require(kind == "features", "kind", "'features', the pixels of glimpses", repr(kind))
        require(num_layers in (2, 3), "num_layers", "2 or 3", num_layers)
        parts = QUADRANTS if num_layers == 3 else QUADRANTS * GLIMPSES
        self.glimpse = nn.Sequential(nn.Linear(input_size, features), nn.ReLU())
        self.quadrant = nn.Sequential(nn.Linear(GLIMPSES * features, features), nn.ReLU()) if num_layers == 3 else None
        self.image = nn.Sequential(nn.Linear(parts * features, features), nn.ReLU())
        self.head = nn.Linear(features, output_size)

    def forward(self, inputs: Tensor, answers: int) -> Tensor:
        """Classifies images.

        Args:
            inputs: Glimpses `[B, 24, input_size]`.
            answers: Number of outputs per image, 1.

        Returns:
            The logits `[B, 1, output_size]`.
        """
        parts = self.glimpse(inputs)
        if self.quadrant is not None:
            parts = self.quadrant(parts.flatten(1).unflatten(1, (QUADRANTS, -1)))
        outputs: Tensor = self.head(self.image(parts.flatten(1)))
        return outputs.unsqueeze(1)
