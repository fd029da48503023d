"""The layer over delta-mlp."""

from typing import Any

from fastweights.cell import Cell
from fastweights.core.arguments import Size
from fastweights.layers.base.cell_layer import CellLayer, require_heads
from fastweights.layers.base.slow_net import Keys, SlowNet


class DeltaMLP(CellLayer):
    """Delta MLP layer: residual feed-forward blocks of fast weights.

        h_0 = q
        h_l = h_(l-1) + W_l f(U_l f(LN(h_(l-1)))), l = 1, ..., L
        y = W_o h_L

    The delta rule writes every U_l and W_l.

    Source: the authors' code for Irie et al. 2021 (arXiv:2106.06295), Table 1. The paper prints another form,
    `PrintedDeltaMLP`.

    Args:
        d_model: Size D of the input and the output.
        num_heads: Number of heads H, each with its own memory. It must divide `d_model`.
        num_layers: Number of blocks L.
        idle: Whether the slow network also has the unused outputs of the authors' code, as many as those for the
            matrices. The published numbers of parameters count them.
        initial_state: Initial state, as in `FastWeight`.

    Example:
        >>> import torch
        >>> layer = DeltaMLP(d_model=16, num_heads=2, num_layers=1)
        >>> y, state = layer(torch.randn(2, 10, 16))
        >>> y.shape
        torch.Size([2, 10, 16])
    """

    def __init__(
        self,
        d_model: Size,
        num_heads: Size = 8,
        num_layers: Size = 2,
        idle: bool = False,
        backend: str = "auto",
        initial_state: Any = "zero",
    ) -> None:
        require_heads(d_model, num_heads)
        cell, size = Cell.from_name("delta-mlp"), d_model // num_heads
        unread = num_layers * 2 * (size + 4 * size) if idle else 0
        sizes = {"V": size, "L": num_layers}
        slow_net = SlowNet(d_model, num_heads, cell, Keys(size, "identity", "none"), sizes, idle=unread)
        super().__init__(d_model, slow_net, cell, backend=backend, initial_state=initial_state)
