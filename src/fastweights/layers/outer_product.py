"""The fast weights of 1991 as a layer."""

from fastweights.cell import Cell
from fastweights.layers._fast_weight import FastWeight


class OuterProduct(FastWeight):
    """W <- tanh(W + v k^T), y = W q: adds every association to weights that cannot grow out of their range.

    Source: Schmidhuber 1991; Schlag et al. 2021, Eqs. 1-3, with keys as they are. There the query is the input itself;
    here a map of it, as everywhere.
    """

    def __init__(
        self,
        d_model: int,
        heads: int = 8,
        feature_map: str = "identity",
        normaliser: str = "none",
        key_size: int | None = None,
        value_size: int | None = None,
        backend: str = "auto",
    ) -> None:
        cell = Cell.named("outer-product")
        super().__init__(d_model, heads, cell, key_size, value_size, feature_map, normaliser, backend=backend)
