"""The layer over delta-mlp."""

from fastweights.cell import Cell
from fastweights.errors import require
from fastweights.layers._fast_weight import FastWeight


class DeltaMLP(FastWeight):
    """y <- y + W_down f(W_up f(LN(y))) for each of `depth` blocks, from y = q: every W by its own delta rule.

    Source: the authors' code for Irie et al. 2021, Table 1; the paper prints another form, `printed-delta-mlp`.
    """

    def __init__(self, d_model: int, heads: int = 8, depth: int = 2, backend: str = "auto") -> None:
        require(depth >= 1, "depth", "at least 1", depth)
        super().__init__(d_model, heads, Cell.named("delta-mlp"), backend=backend, sizes={"L": depth})
