"""The self-referential weight matrix that does not modify itself."""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from fastweights.core.arguments import Size
from fastweights.layers.base.cell_layer import require_heads
from fastweights.layers.base.layer import Controls, Layer
from fastweights.layers.base.slow_net import Keys
from fastweights.state import register_state


@register_state
class NoState(NamedTuple):
    """The empty state of a layer without memory."""


class FakeSRWM(Layer):
    """SRWM that never modifies itself: a control without memory.

        y = W_o [W_1 phi(x_1), ..., W_H phi(x_H)]

    It equals the SRWM with all rates 0.

    Source: Irie et al. 2022 (arXiv:2202.05780), Sec. 4.3 ("Fake SR": the y part of Eq. 5).

    Can: nothing.

    Args:
        d_model: Size D of the input and the output.
        num_heads: Number of heads H. It must divide `d_model`.
        feature_map: Feature map phi of the input, a name from `fastweights list feature-maps`. The paper uses "softmax"
            for reinforcement learning; the authors' code has "identity" everywhere.

    Example:
        >>> layer = FakeSRWM(d_model=16, num_heads=2)
        >>> y, state = layer(torch.randn(2, 10, 16))
        >>> y.shape
        torch.Size([2, 10, 16])
    """

    def __init__(self, d_model: Size, num_heads: Size = 8, feature_map: str = "identity") -> None:
        super().__init__()
        require_heads(d_model, num_heads)
        self.input_size = d_model
        self.keys = Keys(d_model // num_heads, feature_map, "none")
        size = d_model // num_heads
        self.weight = nn.Parameter(torch.empty(num_heads, size, self.keys.output_size))
        self.reset_parameters()
        self.output = nn.Linear(d_model, d_model, bias=False)

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Draws W from N(0, 1 / inputs); the output projection initialises itself."""
        nn.init.normal_(self.weight).div_(self.weight.shape[-1] ** 0.5)

    def run(
        self, x: Tensor, state: NoState | None, reset: Tensor | None, lengths: Tensor | None, controls: Controls
    ) -> tuple[Tensor, NoState]:
        """Runs the layer without checks."""
        parts = self.keys(x.unflatten(-1, (len(self.weight), -1)))
        return self.output(torch.einsum("hvk,bthk->bthv", self.weight, parts).flatten(2)), NoState()

    def initial_state(self, batch_size: int) -> NoState:
        """Returns the empty state."""
        return NoState()
