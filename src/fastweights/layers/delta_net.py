"""Delta-rule layer (DeltaNet)."""

from typing import Any

from fastweights.cell import Cell
from fastweights.core.arguments import Size
from fastweights.layers.base.fast_weight import FastWeight


class DeltaNet(FastWeight):
    """W <- W + beta (v - W k) k^T, y = W q: a memory that corrects what it stores.

    Source: Schlag et al. 2021, Eqs. 20-25.
    """

    def __init__(
        self,
        d_model: Size,
        heads: Size = 8,
        feature_map: str | None = None,
        normaliser: str | None = None,
        key_size: Size | None = None,
        value_size: Size | None = None,
        squashing: str = "sigmoid",
        scale: float = 1.0,
        backend: str = "auto",
        initial: Any = "zero",
    ) -> None:
        cell = Cell.from_name("delta")
        sizes = (key_size, value_size)
        super().__init__(
            d_model, heads, cell, *sizes, feature_map, normaliser, squashing, scale, backend, initial=initial
        )
