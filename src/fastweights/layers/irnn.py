"""The IRNN: a recurrent network of rectified linear units whose recurrence starts as the identity."""

from typing import Annotated, Any, NamedTuple

import torch
from torch import Tensor, nn

from fastweights.core.arguments import Size
from fastweights.layers.base.initial_state import InitialState
from fastweights.layers.base.initialise import assign, change_initial
from fastweights.layers.base.layer import Controls, Layer
from fastweights.layers.base.like import dtype_of
from fastweights.layers.base.torch_recurrent import run_as_scan, run_in_segments
from fastweights.signature import Output, TensorSpec, Value
from fastweights.state import register_state


@register_state
class IRNNState(NamedTuple):
    """Hidden state `[B, D]`, at least in float32."""

    h: Output


class IRNNInputs(NamedTuple):
    """Input of a step: C x + b."""

    z: Value


class IRNNParams(NamedTuple):
    """The map from state to state."""

    W: Annotated[Tensor, TensorSpec("V V", "weight")]


def irnn_step(state: IRNNState, x: IRNNInputs, params: IRNNParams) -> tuple[IRNNState, Value]:
    """h <- relu(W h + z), y = h."""
    h = (params.W @ state.h + x.z).relu()
    return IRNNState(h), h


class IRNN(Layer):
    """IRNN layer: an RNN of ReLUs whose recurrence starts as the identity.

        y = h <- relu(W h + C x + b)

    It is `torch.nn.RNN` with resets. W starts as the identity, so that h is preserved at first. C starts small
    (standard deviation 0.001) and b at 0, as in the paper.

    Source: Le et al. 2015 (A Simple Way to Initialize Recurrent Networks of Rectified Linear Units, arXiv:1504.00941),
    Secs. 2 and 3.

    Can: recur.

    Args:
        d_model: Number of units, and size D of the output.
        input_size: Size of the input. None: `d_model`.
        initial_state: Initial state: "zero", "learned", or an `IRNNState` of constants that broadcast to `[D]`.

    Example:
        >>> layer = IRNN(d_model=16)
        >>> y, state = layer(torch.randn(2, 10, 16))
        >>> y.shape, state.h.shape
        (torch.Size([2, 10, 16]), torch.Size([2, 16]))
    """

    def __init__(self, d_model: Size, input_size: Size | None = None, initial_state: Any = "zero") -> None:
        super().__init__()
        self.input_size = d_model if input_size is None else input_size
        self.start = InitialState(IRNNState, {"h": (d_model,)}, initial_state)
        self.rnn = nn.RNN(self.input_size, d_model, nonlinearity="relu", batch_first=True)
        change_initial(self.rnn, _start_as_identity)

    def run(
        self, x: Tensor, state: IRNNState | None, reset: Tensor | None, lengths: Tensor | None, controls: Controls
    ) -> tuple[Tensor, IRNNState]:
        """Runs the layer on checked inputs."""
        if torch.compiler.is_exporting():
            state = self.initial_state(x.shape[0]) if state is None else state
            return run_as_scan(irnn_step, self.rnn.all_weights[0], x, state, self.start(), reset, lengths)
        return run_in_segments(self._run, x, state, self.initial_state, reset, lengths)

    def initial_state(self, batch_size: int) -> IRNNState:
        """Returns the state before the first step, batch first."""
        state: IRNNState = self.start.of_batch(batch_size, self)
        return state

    def _run(self, x: Tensor, state: IRNNState) -> tuple[Tensor, IRNNState]:
        y, h = self.rnn(x, state.h.unsqueeze(0).to(dtype_of(self, x)).contiguous())
        return y, IRNNState(h.squeeze(0).to(state.h.dtype))


def _start_as_identity(rnn: nn.RNN) -> None:
    """Sets W to the identity, C to small weights, and the biases to 0."""
    C, W, *biases = rnn.all_weights[0]
    assign(W, torch.eye(len(W), device=W.device))
    nn.init.normal_(C, std=0.001)
    for bias in biases:
        nn.init.zeros_(bias)
