"""The Delta Delta Net as a layer."""

from typing import Any

import torch
from torch import nn

from fastweights.cell import Cell
from fastweights.cells.delta_delta_net import DeltaDeltaNetState
from fastweights.core.arguments import Probability, Size
from fastweights.core.errors import require
from fastweights.layers.base.fast_weight import FastWeight
from fastweights.layers.base.initial_state import InitialState
from fastweights.layers.base.initialise import change_initial


class DeltaDeltaNet(FastWeight):
    """Delta Delta Net layer: a DeltaNet programmed by another DeltaNet.

        P <- P + beta (x_v - P x_k) x_k^T
        [q, k, v, b] = P x_q
        W <- W + b (v - W k) k^T
        y = W q

    Source: Irie et al. 2021 (arXiv:2106.06295), Sec. 3.1. The learned initial P, drawn from U(1, 2), is an option of
    the authors' code that is off in Table 1.

    Args:
        learned_start: Whether the initial P is learned. The initial W is 0 in any case.

    Example:
        >>> layer = DeltaDeltaNet(d_model=16, num_heads=2, learned_start=True)
        >>> y, state = layer(torch.randn(2, 10, 16))
        >>> y.shape
        torch.Size([2, 10, 16])
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
        read_dropout: Probability = 0.0,
        learned_start: bool = False,
    ) -> None:
        cell, keys = Cell.from_name("delta-delta-net"), (key_size, value_size, feature_map, qk_norm, rate_activation)
        super().__init__(
            d_model, num_heads, cell, *keys, scale, backend, initial_state=initial_state, read_dropout=read_dropout
        )
        if learned_start:
            is_default = isinstance(initial_state, str) and initial_state == "zero"
            require(
                is_default,
                "initial_state",
                "left out with learned_start",
                repr(initial_state),
                "It also determines the start of P.",
            )
            zero = torch.zeros((), device="cpu")
            P = {name: nn.Parameter(zero) for name in DeltaDeltaNetState._fields if name != "W"}
            self.start = InitialState.of_heads(cell, num_heads, self.slow_net.sizes, DeltaDeltaNetState(**P, W=zero))
            change_initial(self.start, _spread)


def _spread(start: InitialState) -> None:
    """P from U(1, 2)."""
    for P in start.parameters():
        nn.init.uniform_(P, 1, 2)
