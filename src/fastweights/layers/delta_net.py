"""Delta-rule layer (DeltaNet)."""

from typing import Any

from fastweights.cell import Cell
from fastweights.core.arguments import Size
from fastweights.layers.base.fast_weight import FastWeight


class DeltaNet(FastWeight):
    """Delta-rule layer (DeltaNet).

        W <- W + beta (v - W k) k^T
        y = W_o [W_1 q_1, ..., W_H q_H]

    Each write replaces the value that the memory retrieves for the key k, as far as the rate beta allows.

    Source: Schlag et al. 2021 (arXiv:2102.11174), Eqs. 20-25.

    Example:
        >>> import torch
        >>> layer = DeltaNet(d_model=64, num_heads=4, feature_map="dpfp-2")
        >>> y, state = layer(torch.randn(2, 10, 64))
        >>> y.shape, state.W.shape
        (torch.Size([2, 10, 64]), torch.Size([2, 4, 16, 64]))
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
