"""The IRNN: a recurrent network of rectified linear units that starts by remembering."""

from typing import NamedTuple

from torch import Tensor, nn

from fastweights.layers._programmed import check_layer_input
from fastweights.layers._torch_recurrent import run_between_resets
from fastweights.state import with_methods


@with_methods
class IRNNState(NamedTuple):
    """Hidden state `[B, D]`."""

    h: Tensor


class IRNN(nn.Module):
    """h <- relu(W h + C x + b), y = h: W starts as the identity, so that h is kept until training says otherwise.

    C starts small (standard deviation 0.001) and b at 0, as in the paper. It is `torch.nn.RNN` with resets.

    Source: Le et al. 2015 (A Simple Way to Initialize Recurrent Networks of Rectified Linear Units), Secs. 2 and 3.

    Can: recur.

    Args:
        d_model: Number of units, and size of the output.
        input_size: Size of the input; `d_model` if None.
    """

    def __init__(self, d_model: int, input_size: int | None = None) -> None:
        super().__init__()
        given = d_model if input_size is None else input_size
        self.rnn = nn.RNN(given, d_model, nonlinearity="relu", batch_first=True)
        C, W, *biases = self.rnn.all_weights[0]
        nn.init.eye_(W)
        nn.init.normal_(C, std=0.001)
        for bias in biases:
            nn.init.zeros_(bias)

    def forward(
        self, x: Tensor, state: IRNNState | None = None, reset: Tensor | None = None
    ) -> tuple[Tensor, IRNNState]:
        """x `[B, T, D]`, reset bool `[B, T]` -> y `[B, T, D]` and the state after the last step."""
        check_layer_input(x, self.rnn.input_size)
        return run_between_resets(self._run, x, state, self.initial_state(len(x)), reset)

    def initial_state(self, batch_size: int) -> IRNNState:
        """Zeros."""
        weight = self.rnn.all_weights[0][0]
        return IRNNState(weight.new_zeros(batch_size, self.rnn.hidden_size))

    def _run(self, x: Tensor, state: IRNNState) -> tuple[Tensor, IRNNState]:
        y, h = self.rnn(x, state.h.unsqueeze(0).contiguous())
        return y, IRNNState(h.squeeze(0))
