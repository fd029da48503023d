"""The Recurrent DeltaNet with slow weights across heads."""

from typing import Any

from fastweights.cell import Cell
from fastweights.core.arguments import Size
from fastweights.layers.base.cell_layer import require_heads
from fastweights.layers.base.fast_weight import FastWeight


class FullRecurrentDeltaNet(FastWeight):
    """W_m <- W_m + beta_m (v_m - W_m k_m) k_m^T, y_m = W_m q_m; q, k, v, beta of all m get R tanh(y) of all y.

    The recurrent weights are D by D, where those of `recurrent-delta-net` stay within a head.

    Source: Irie et al. 2021, Eqs. 15-18, as printed.
    """

    def __init__(
        self, d_model: Size, num_heads: Size = 8, scale: float = 1.0, backend: str = "auto", initial_state: Any = "zero"
    ) -> None:
        require_heads(d_model, num_heads)
        size = d_model // num_heads
        cell = Cell.from_name("full-recurrent-delta-net")
        sizes = {"M": num_heads}
        # One head for the scan, since the memories of a step are not independent.
        super().__init__(
            d_model, 1, cell, size, size, scale=scale, backend=backend, sizes=sizes, initial_state=initial_state
        )
