"""The fast weight memory as a layer."""

from fastweights.cell import Cell
from fastweights.layers._fast_weight import FastWeight


class FastWeightMemory(FastWeight):
    """W <- M / max(1, |M|), M = W + beta (v - W k) k^T, y = LN(W q): the norm keeps the memory bounded.

    Source: Schlag et al. 2021 (Learning Associative Inference Using Fast Weight Memory), Eqs. 6-9. Keys by tanh, or by
    `feature_map="dpfp-1"` as in one experiment of Schlag et al. 2021, Sec. 6.1.2; neither is normalised.
    """

    def __init__(
        self,
        d_model: int,
        heads: int = 8,
        feature_map: str = "tanh",
        normaliser: str = "none",
        key_size: int | None = None,
        value_size: int | None = None,
        backend: str = "auto",
    ) -> None:
        cell = Cell.named("fast-weight-memory")
        super().__init__(d_model, heads, cell, key_size, value_size, feature_map, normaliser, backend=backend)
