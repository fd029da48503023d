"""The LSTM as a layer."""

from typing import Any, NamedTuple

from torch import Tensor, nn

from fastweights.layers._layer import Controls, Layer
from fastweights.layers._start import Start
from fastweights.layers._torch_recurrent import run_in_stretches
from fastweights.state import with_methods


@with_methods
class LSTMState(NamedTuple):
    """Hidden state and cell state, `[B, layers, D]`, at least in float32."""

    h: Tensor
    c: Tensor


class LSTM(Layer):
    """c <- f c + i tanh(u), y = o tanh(c): the recurrent baseline, `torch.nn.LSTM` with resets.

    Source: Hochreiter and Schmidhuber 1997; Gers et al. 2000.

    Can: overwrite, fade, recur.

    Args:
        d_model: Number of units, and size of the output.
        layers: Number of layers.
        input_size: Size of the input; `d_model` if None.
        initial: The initial state: "zero", "learned", or an `LSTMState` of constants that fit `[layers, D]`.
    """

    def __init__(self, d_model: int, layers: int = 1, input_size: int | None = None, initial: Any = "zero") -> None:
        super().__init__()
        self.input_size = d_model if input_size is None else input_size
        self.start = Start(LSTMState, dict.fromkeys(LSTMState._fields, (layers, d_model)), initial)
        self.lstm = nn.LSTM(self.input_size, d_model, layers, batch_first=True)

    def run(
        self, x: Tensor, state: LSTMState | None, reset: Tensor | None, lengths: Tensor | None, controls: Controls
    ) -> tuple[Tensor, LSTMState]:
        """What the layer does."""
        return run_in_stretches(self._run, x, state, self.initial_state(len(x)), reset, lengths)

    def initial_state(self, batch_size: int) -> LSTMState:
        """The state before the first step, batch first in every leaf."""
        state: LSTMState = self.start.of_batch(batch_size, self.lstm.all_weights[0][0])
        return state

    def _run(self, x: Tensor, state: LSTMState) -> tuple[Tensor, LSTMState]:
        given = (leaf.transpose(0, 1).to(self.lstm.all_weights[0][0].dtype).contiguous() for leaf in state)
        y, last = self.lstm(x, tuple(given))
        return y, LSTMState(*(leaf.transpose(0, 1).to(state.c.dtype) for leaf in last))
