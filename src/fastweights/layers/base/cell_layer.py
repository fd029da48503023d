"""Base class of the layers over a cell: slow network, scan and output projection."""

from collections.abc import Mapping
from math import prod
from typing import Any

from torch import Tensor, nn

from fastweights.cell import Cell, letters
from fastweights.core.arguments import Probability, Size
from fastweights.core.errors import require
from fastweights.dispatch import require_backend, scan
from fastweights.layers.base.initial_state import InitialState
from fastweights.layers.base.layer import NO_CONTROLS, Controls, Layer
from fastweights.layers.base.slow_weights import SlowWeights


class CellLayer(Layer):
    """Layer over a cell: slow network, scan and output projection.

        y = W_o [scale read_1, ..., scale read_H]

    Args:
        d_model: Size D of the input and the output.
        slow_net: Slow network: a module from x `[B, T, input_size]` and controls to `cell.Inputs` `[B, T, H, ...]`,
            with the attributes `num_heads` and `sizes`.
        cell: Cell that the slow network programs.
        scale: Factor on the output of the memory.
        backend: Backend of `scan`: "auto", "compiled", "chunkwise" or "reference".
        constants: Values of the parameters of the cell with the role "constant", by name.
        output: Module that replaces the output projection W_o. None: a linear map without bias.
        initial_state: Initial state: "zero", "learned", or a `cell.State` of constants that broadcast to `[H, ...]`. An
            `nn.Parameter` in it is copied and learned.
        read_dropout: Dropout probability of the outputs of the memory, before W_o.
    """

    def __init__(
        self,
        d_model: Size,
        slow_net: Any,
        cell: Cell,
        scale: float = 1.0,
        backend: str = "auto",
        constants: Mapping[str, float] | None = None,
        output: nn.Module | None = None,
        initial_state: Any = "zero",
        read_dropout: Probability = 0.0,
    ) -> None:
        super().__init__()
        require_backend(backend)
        self.input_size = slow_net.input_size
        self.controls = tuple(name for name, slot in cell.slots["Inputs"].items() if slot.kind == "control")
        self.cell = cell
        self.scale = scale
        self.backend = backend
        self.slow_net = slow_net
        self.state_has_sizes = not letters(cell, "State") <= letters(cell, "Inputs") | letters(cell, "Params")
        self.slow_weights = SlowWeights(cell, slow_net.num_heads, slow_net.sizes, constants)
        self.start = InitialState.of_heads(cell, slow_net.num_heads, slow_net.sizes, initial_state)
        read = prod(cell.output.shape(slow_net.sizes))
        self.read_dropout = nn.Dropout(read_dropout) if read_dropout else nn.Identity()
        self.output = nn.Linear(slow_net.num_heads * read, d_model, bias=False) if output is None else output

    def check_state(self, state: Any, x: Tensor) -> Any:
        """Returns the state unchanged, since the scan checks it."""
        return state

    def run(
        self,
        x: Tensor,
        state: Any,
        reset: Tensor | None,
        lengths: Tensor | None,
        controls: Controls = NO_CONTROLS,
    ) -> tuple[Tensor, Any]:
        """Runs the layer on checked inputs."""
        inputs = self.slow_net(x, controls)
        if state is None and self.state_has_sizes:
            state = self.initial_state(x.shape[0])
        y, state = scan(self.cell, inputs, state, self.slow_weights(), reset, lengths, self.start(), self.backend)
        return self.output(self.read_dropout(self.scale * y.flatten(2))), state

    def initial_state(self, batch_size: int) -> Any:
        """Returns the state before the first step, batch first in every leaf."""
        return self.start.of_batch(batch_size, self)


def require_heads(d_model: int, num_heads: int) -> None:
    """Raises unless `num_heads` divides `d_model`."""
    fits = num_heads >= 1 and d_model % num_heads == 0
    require(
        fits, "num_heads", f"a divisor of d_model={d_model}", num_heads, "Give key_size and value_size for other sizes."
    )
