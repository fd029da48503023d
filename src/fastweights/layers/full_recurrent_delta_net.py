"""The Recurrent DeltaNet with slow weights across heads."""

from typing import Any

from fastweights.cell import Cell
from fastweights.core.arguments import Size
from fastweights.layers.base.cell_layer import require_heads
from fastweights.layers.base.fast_weight import FastWeight


class FullRecurrentDeltaNet(FastWeight):
    """Recurrent DeltaNet layer with recurrence across heads.

        W_m <- W_m + beta_m (v_m - W_m k_m) k_m^T
        y_m = W_m q_m

    R tanh([y_1, ..., y_M]) of the previous step is added to q, k, v and beta of every head m. R maps all D outputs; in
    `recurrent-delta-net` it stays within a head.

    Source: Irie et al. 2021 (arXiv:2106.06295), Eqs. 15-18, as printed.

    Args:
        num_heads: Number of heads M, each with its own memory. It must divide `d_model`.

    Example:
        >>> import torch
        >>> layer = FullRecurrentDeltaNet(d_model=16, num_heads=2)
        >>> y, state = layer(torch.randn(2, 10, 16))
        >>> y.shape
        torch.Size([2, 10, 16])
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
