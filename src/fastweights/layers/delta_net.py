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
        num_heads: Size = 8,
        feature_map: str | None = None,
        qk_norm: str | None = None,
        key_size: Size | None = None,
        value_size: Size | None = None,
        rate_activation: str = "sigmoid",
        scale: float = 1.0,
        backend: str = "auto",
        initial_state: Any = "zero",
    ) -> None:
        cell = Cell.from_name("delta")
        sizes = (key_size, value_size)
        super().__init__(
            d_model,
            num_heads,
            cell,
            *sizes,
            feature_map,
            qk_norm,
            rate_activation,
            scale,
            backend,
            initial_state=initial_state,
        )
