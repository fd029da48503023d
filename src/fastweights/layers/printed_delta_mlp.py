"""The layer over printed-delta-mlp."""

from typing import Any

from fastweights.cell import Cell
from fastweights.core.arguments import Size
from fastweights.layers.base.fast_weight import FastWeight


class PrintedDeltaMLP(FastWeight):
    """Delta MLP layer as printed in the paper: an MLP of fast weights.

        h_0 = q
        h_l = W_l f(h_(l-1)), l = 1, ..., L
        y = W_o h_L

    The delta rule writes every W_l.

    Source: Irie et al. 2021 (arXiv:2106.06295), Eqs. 13-14.

    Args:
        num_layers: Number L of fast weight matrices.

    Example:
        >>> import torch
        >>> layer = PrintedDeltaMLP(d_model=16, num_heads=2)
        >>> y, state = layer(torch.randn(2, 10, 16))
        >>> y.shape
        torch.Size([2, 10, 16])
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
