"""The LSTM as a layer."""

from typing import NamedTuple

from torch import Tensor, nn

from fastweights.layers._programmed import check_layer_input
from fastweights.layers._torch_recurrent import run_between_resets
from fastweights.state import with_methods


@with_methods
class LSTMState(NamedTuple):
    """Hidden state and cell state, `[B, layers, D]`."""

    h: Tensor
    c: Tensor


class LSTM(nn.Module):
    """c <- f c + i tanh(u), y = o tanh(c): the recurrent baseline, `torch.nn.LSTM` with resets.

    Source: Hochreiter and Schmidhuber 1997; Gers et al. 2000.

    Can: overwrite, fade, recur.

    Args:
        d_model: Number of units, and size of the output.
        layers: Number of layers.
        input_size: Size of the input; `d_model` if None.
    """

    def __init__(self, d_model: int, layers: int = 1, input_size: int | None = None) -> None:
        super().__init__()
        self.lstm = nn.LSTM(d_model if input_size is None else input_size, d_model, layers, batch_first=True)

    def forward(
        self, x: Tensor, state: LSTMState | None = None, reset: Tensor | None = None
    ) -> tuple[Tensor, LSTMState]:
        """x `[B, T, D]`, reset bool `[B, T]` -> y `[B, T, D]` and the state after the last step."""
        check_layer_input(x, self.lstm.input_size)
        return run_between_resets(self._run, x, state, self.initial_state(len(x)), reset)

    def initial_state(self, batch_size: int) -> LSTMState:
        """Zeros."""
        weight = self.lstm.all_weights[0][0]
        zeros = weight.new_zeros(batch_size, self.lstm.num_layers, self.lstm.hidden_size)
        return LSTMState(zeros, zeros)

    def _run(self, x: Tensor, state: LSTMState) -> tuple[Tensor, LSTMState]:
        h, c = (leaf.transpose(0, 1).contiguous() for leaf in state)
        y, (h, c) = self.lstm(x, (h, c))
        return y, LSTMState(h.transpose(0, 1), c.transpose(0, 1))
