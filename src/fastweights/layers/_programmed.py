"""What all layers over a cell share: a slow net, the scan, an output projection."""

from collections.abc import Mapping
from math import prod
from typing import Any

from torch import Tensor, nn

from fastweights.cell import Cell, initial_state, letters
from fastweights.dispatch import scan
from fastweights.errors import require
from fastweights.layers._slow_weights import SlowWeights


class Programmed(nn.Module):
    """y = W_o [scale read_1, ..., scale read_H], where the heads of a cell read what the slow net programs.

    Args:
        d_model: Size of the input and output.
        slow_net: A module from x `[B, T, D]` to `cell.Inputs` `[B, T, H, ...]`, which has `heads` and `sizes`.
        cell: The cell.
        scale: Factor on what the memory returns.
        backend: The backend of `scan`.
        constants: Values of the cell's parameters with the role "constant".
    """

    def __init__(
        self,
        d_model: int,
        slow_net: Any,
        cell: Cell,
        scale: float = 1.0,
        backend: str = "auto",
        constants: Mapping[str, float] | None = None,
    ) -> None:
        super().__init__()
        self.cell = cell
        self.scale = scale
        self.backend = backend
        self.slow_net = slow_net
        self.state_has_sizes = not letters(cell, "State") <= letters(cell, "Inputs") | letters(cell, "Params")
        self.slow_weights = SlowWeights(cell, slow_net.heads, slow_net.sizes, constants)
        read = prod(cell.output.shape(slow_net.sizes))
        self.output = nn.Linear(slow_net.heads * read, d_model, bias=False)

    def forward(self, x: Tensor, state: Any = None, reset: Tensor | None = None) -> tuple[Tensor, Any]:
        """x `[B, T, D]`, reset bool `[B, T]` -> y `[B, T, D]` and the state after the last step."""
        check_layer_input(x, self.output.out_features)
        return self.read(self.slow_net(x), state, reset)

    def read(self, inputs: Any, state: Any, reset: Tensor | None) -> tuple[Tensor, Any]:
        """`cell.Inputs` `[B, T, H, ...]` -> y `[B, T, D]` and the state after the last step."""
        if state is None and self.state_has_sizes:
            state = self.initial_state(len(inputs[0]))
        y, state = scan(self.cell, inputs, state, self.slow_weights(), reset, self.backend)
        return self.output(self.scale * y.flatten(2)), state

    def initial_state(self, batch_size: int) -> Any:
        """The state before the first step, batch first in every leaf."""
        leading = (batch_size, self.slow_net.heads)
        return initial_state(self.cell, self.slow_net.sizes, leading, self.output.weight)


def require_heads(d_model: int, heads: int) -> None:
    """Raises unless `heads` divides `d_model`."""
    fits = heads >= 1 and d_model % heads == 0
    require(fits, "heads", f"a divisor of d_model={d_model}", heads, "Give key_size and value_size for other sizes.")


def check_layer_input(x: Tensor, d_model: int) -> None:
    """Raises unless x is `[B, T, d_model]` with at least one step."""
    fits = x.ndim == 3 and x.shape[-1] == d_model and x.shape[1] > 0
    require(fits, "x", f"[B, T, D] with D={d_model} and T of at least 1", list(x.shape))
