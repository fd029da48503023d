"""The associative LSTM as a layer."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import one_hot

from fastweights.cell import Cell
from fastweights.cells.associative_lstm import AssociativeLSTMInputs, AssociativeLSTMParams
from fastweights.core.arguments import Size
from fastweights.core.errors import require
from fastweights.dispatch import scan
from fastweights.layers.base.initial_state import InitialState
from fastweights.layers.base.initialise import assign
from fastweights.layers.base.layer import Controls, Layer


class AssociativeLSTM(Layer):
    """Associative LSTM layer: complex memory cells in noisy copies.

        c_s <- f * c_s + (P_s r_i) * (i * u)
        y = o * bound(mean_s((P_s r_o) * c_s))

    P_s are fixed random permutations, the same in every layer. They are saved with the parameters. All units form one
    network, since the paper has no heads, and y is its output.

    Source: Danihelka et al. 2016 (Associative Long Short-Term Memory, arXiv:1602.03032), Sec. 5.

    Args:
        d_model: Size D of the output, and of the input if `input_size` is None. It must be even, since it holds D / 2
            complex numbers.
        copies: Number of redundant copies of the memory.
        input_size: Size of the input. None: `d_model`.
        backend: Backend of `scan`: "auto", "compiled", "chunkwise" or "reference".
        initial_state: Initial state, as in `FastWeight`.

    Raises:
        InputError: `d_model` is odd, or `copies` is below 1.

    Example:
        >>> layer = AssociativeLSTM(d_model=16, copies=2)
        >>> y, state = layer(torch.randn(2, 10, 16))
        >>> y.shape
        torch.Size([2, 10, 16])
    """

    def __init__(
        self,
        d_model: Size,
        copies: Size = 4,
        input_size: Size | None = None,
        backend: str = "auto",
        initial_state: Any = "zero",
    ) -> None:
        super().__init__()
        require(d_model % 2 == 0, "d_model", "even, since complex numbers have two parts", d_model)
        self.cell = Cell.from_name("associative-lstm")
        self.backend = backend
        self.sizes = {"V": d_model // 2, "S": copies}
        self.start = InitialState.of_heads(self.cell, 1, self.sizes, initial_state)
        self.input_size = d_model if input_size is None else input_size
        outputs = 9 * self.sizes["V"]
        # A parameter, not an `nn.Linear`, since the scan multiplies by it inside a step.
        self.recurrent = nn.Parameter(torch.empty(outputs, d_model))
        self.permutations: Tensor
        self.register_buffer("permutations", torch.empty(copies, self.sizes["V"], dtype=torch.long))
        self.reset_parameters()
        self.input = nn.Linear(self.input_size, outputs)

    def reset_parameters(self) -> None:
        """Draws the recurrent weights and sets the permutations. The input projection initialises itself."""
        bound = self.recurrent.shape[1] ** -0.5
        nn.init.uniform_(self.recurrent, -bound, bound)
        assign(self.permutations, _draw_permutations(*self.permutations.shape))

    def run(
        self, x: Tensor, state: Any, reset: Tensor | None, lengths: Tensor | None, controls: Controls
    ) -> tuple[Tensor, Any]:
        """Runs the layer on checked inputs."""
        P = one_hot(self.permutations, self.sizes["V"]).to(self.recurrent.dtype)
        inputs = AssociativeLSTMInputs(self.input(x).unsqueeze(2))
        params = AssociativeLSTMParams(self.recurrent.unsqueeze(0), P.unsqueeze(0))
        y, state = scan(self.cell, inputs, state, params, reset, lengths, self.start(), self.backend)
        return y.flatten(2), state

    def initial_state(self, batch_size: int) -> Any:
        """Returns the state before the first step, batch first in every leaf."""
        return self.start.of_batch(batch_size, self)


def _draw_permutations(copies: int, units: int) -> Tensor:
    """int `[copies, units]` on the CPU, the same in every layer."""
    generator = torch.Generator().manual_seed(0)
    return torch.stack([torch.randperm(units, generator=generator, device="cpu") for _ in range(copies)])
