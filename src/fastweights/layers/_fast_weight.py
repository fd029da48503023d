"""The general layer: slow net, scan, output projection."""

from typing import Any

import torch
from torch import Tensor, nn

from fastweights.cell import Cell, initial_state
from fastweights.dispatch import scan
from fastweights.errors import require
from fastweights.layers._slow_net import SlowNet


class FastWeight(nn.Module):
    """y = W_o [scale read_1, ..., scale read_H]: a cell programmed by a slow net, over any number of heads.

    Args:
        d_model: Size of the input and output.
        heads: Number of memories; it divides `d_model` unless both sizes are given.
        cell: A `Cell`, a step or a rule.
        key_size: Size of keys and queries before the feature map; `d_model // heads` if None.
        value_size: Size of the values; `d_model // heads` if None.
        feature_map: A name from `fastweights list feature-maps`.
        normaliser: "sum", "l2" or "none".
        scale: Factor on what the memory returns.
        backend: The backend of `scan`.
    """

    def __init__(
        self,
        d_model: int,
        heads: int,
        cell: Any,
        key_size: int | None = None,
        value_size: int | None = None,
        feature_map: str = "elu",
        normaliser: str = "sum",
        scale: float = 1.0,
        backend: str = "auto",
    ) -> None:
        super().__init__()
        if key_size is None or value_size is None:
            require_heads(d_model, heads)
        self.cell = Cell.of(cell)
        self.scale = scale
        self.backend = backend
        value_size = value_size or d_model // heads
        self.slow_net = SlowNet(
            d_model, heads, self.cell, key_size or d_model // heads, value_size, feature_map, normaliser
        )
        self.output = nn.Linear(heads * value_size, d_model, bias=False)

    def forward(self, x: Tensor, state: Any = None, reset: Tensor | None = None) -> tuple[Tensor, Any]:
        """x `[B, T, D]`, reset bool `[B, T]` -> y `[B, T, D]` and the state after the last step."""
        check_layer_input(x, self.output.out_features)
        y, state = scan(self.cell, self.slow_net(x), state, reset=reset, backend=self.backend)
        return self.output(self.scale * y.flatten(2)), state

    def initial_state(self, batch_size: int) -> Any:
        """The state before the first step, batch first in every leaf."""
        like = self.output.weight
        like = like.to(torch.promote_types(like.dtype, torch.float32))
        return initial_state(self.cell, self.slow_net.sizes, (batch_size, self.slow_net.heads), like)


def require_heads(d_model: int, heads: int) -> None:
    """Raises unless `heads` divides `d_model`."""
    fits = heads >= 1 and d_model % heads == 0
    require(fits, "heads", f"a divisor of d_model={d_model}", heads, "Give key_size and value_size for other sizes.")


def check_layer_input(x: Tensor, d_model: int) -> None:
    """Raises unless x is `[B, T, d_model]` with at least one step."""
    fits = x.ndim == 3 and x.shape[-1] == d_model and x.shape[1] > 0
    require(fits, "x", f"[B, T, D] with D={d_model} and T of at least 1", list(x.shape))
