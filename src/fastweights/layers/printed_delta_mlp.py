"""The layer over printed-delta-mlp."""

from typing import Any

from fastweights.cell import Cell
from fastweights.core.arguments import Size
from fastweights.layers.base.fast_weight import FastWeight


class PrintedDeltaMLP(FastWeight):
    """h_l = W_l f(h_(l-1)) for l = 1..depth, h_0 = q, y = h_depth: every W_l by its own delta rule.

    Source: Irie et al. 2021, Eqs. 13-14.
    """

    def __init__(
        self,
        d_model: Size,
        num_heads: Size = 8,
        num_layers: Size = 2,
        backend: str = "auto",
        initial_state: Any = "zero",
    ) -> None:
        sizes = {"L": num_layers}
        super().__init__(
            d_model,
            num_heads,
            Cell.from_name("printed-delta-mlp"),
            backend=backend,
            sizes=sizes,
            initial_state=initial_state,
        )
