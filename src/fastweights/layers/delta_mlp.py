"""The layer over delta-mlp."""

from typing import Any

from fastweights.cell import Cell
from fastweights.core.arguments import Size
from fastweights.layers.base.cell_layer import Programmed, require_heads
from fastweights.layers.base.slow_net import Keys, SlowNet


class DeltaMLP(Programmed):
    """y <- y + W_down f(W_up f(LN(y))) for each of `num_layers` blocks, from y = q: every W by its own delta rule.

    Source: the authors' code for Irie et al. 2021, Table 1; the paper prints another form, `printed-delta-mlp`.

    Args:
        d_model: Size of the input and output.
        num_heads: Number of memories; divides `d_model`.
        num_layers: Number of blocks.
        idle: Whether the slow network also has the unused outputs of the authors' code, as many as those for the
            matrices. The published numbers of parameters count them.
        backend: The backend of `scan`.
        initial_state: The initial state, as in `FastWeight`.
    """

    def __init__(
        self,
        d_model: Size,
        num_heads: Size = 8,
        num_layers: Size = 2,
        idle: bool = False,
        backend: str = "auto",
        initial_state: Any = "zero",
    ) -> None:
        require_heads(d_model, num_heads)
        cell, size = Cell.from_name("delta-mlp"), d_model // num_heads
        unread = num_layers * 2 * (size + 4 * size) if idle else 0
        sizes = {"V": size, "L": num_layers}
        slow_net = SlowNet(d_model, num_heads, cell, Keys(size, "identity", "none"), sizes, idle=unread)
        super().__init__(d_model, slow_net, cell, backend=backend, initial_state=initial_state)
