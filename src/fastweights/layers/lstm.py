"""The LSTM as a layer."""

from typing import Annotated, Any, NamedTuple

import torch
from torch import Tensor, nn

from fastweights.core.arguments import Size
from fastweights.core.autocast import HAS_BFLOAT16, autocasts, full_precision
from fastweights.layers.base.initial_state import InitialState
from fastweights.layers.base.layer import Controls, Layer
from fastweights.layers.base.like import dtype_of
from fastweights.layers.base.torch_recurrent import run_as_scan, run_in_segments
from fastweights.signature import Output, TensorSpec, Value
from fastweights.state import register_state

Recurrent = Annotated[Tensor, TensorSpec("V V", "weight")]


@register_state
class LSTMState(NamedTuple):
    """Hidden state and cell state, `[B, num_layers, D]`, at least in float32."""

    h: Output
    c: Output


class LSTMInputs(NamedTuple):
    """Inputs of the gates of a step: C x + b."""

    i: Value
    f: Value
    u: Value
    o: Value


class LSTMParams(NamedTuple):
    """The maps from the hidden state to the gates."""

    R_i: Recurrent
    R_f: Recurrent
    R_u: Recurrent
    R_o: Recurrent


def lstm_step(state: LSTMState, x: LSTMInputs, params: LSTMParams) -> tuple[LSTMState, Value]:
    """c <- f c + i tanh(u), h <- o tanh(c), y = h; i, f, o go through the sigmoid, and all four add R h."""
    i, f, u, o = (z + R @ state.h for z, R in zip(x, params, strict=True))
    c = f.sigmoid() * state.c + i.sigmoid() * u.tanh()
    h = o.sigmoid() * c.tanh()
    return LSTMState(h, c), h


class LSTM(Layer):
    """LSTM layer: the recurrent baseline, `torch.nn.LSTM` with resets.

        c <- f * c + i * tanh(u)
        y = h <- o * tanh(c)

    The gates i, f and o are sigmoids.

    Source: Hochreiter and Schmidhuber 1997 (doi:10.1162/neco.1997.9.8.1735); Gers et al. 2000
    (doi:10.1162/089976600300015015).

    Can: overwrite, fade, recur.

    Args:
        d_model: Number of units, and size D of the output.
        num_layers: Number of layers.
        input_size: Size of the input. None: `d_model`.
        initial_state: Initial state: "zero", "learned", or an `LSTMState` of constants that broadcast to `[layers, D]`.

    Example:
        >>> layer = LSTM(d_model=16, num_layers=2)
        >>> y, state = layer(torch.randn(2, 10, 16))
        >>> y.shape, state.h.shape
        (torch.Size([2, 10, 16]), torch.Size([2, 2, 16]))
    """

    def __init__(
        self, d_model: Size, num_layers: Size = 1, input_size: Size | None = None, initial_state: Any = "zero"
    ) -> None:
        super().__init__()
        self.input_size = d_model if input_size is None else input_size
        self.start = InitialState(LSTMState, dict.fromkeys(LSTMState._fields, (num_layers, d_model)), initial_state)
        self.lstm = nn.LSTM(self.input_size, d_model, num_layers, batch_first=True)

    def run(
        self, x: Tensor, state: LSTMState | None, reset: Tensor | None, lengths: Tensor | None, controls: Controls
    ) -> tuple[Tensor, LSTMState]:
        """Runs the layer on checked inputs."""
        if torch.compiler.is_exporting():
            return self._scan(x, self.initial_state(x.shape[0]) if state is None else state, reset, lengths)
        return run_in_segments(self._run, x, state, self.initial_state, reset, lengths)

    def initial_state(self, batch_size: int) -> LSTMState:
        """Returns the state before the first step, batch first in every leaf."""
        state: LSTMState = self.start.of_batch(batch_size, self)
        return state

    def _run(self, x: Tensor, state: LSTMState) -> tuple[Tensor, LSTMState]:
        dtype = dtype_of(self, x)
        hidden = tuple(leaf.transpose(0, 1).to(dtype).contiguous() for leaf in state)
        if autocasts(x.device) and x.device.type == "cpu" and not HAS_BFLOAT16:
            # Autocast would call a bfloat16 kernel that oneDNN lacks on this CPU.
            with full_precision(x.device):
                y, last = self.lstm(x.to(dtype), hidden)
        else:
            y, last = self.lstm(x, hidden)
        return y, LSTMState(*(leaf.transpose(0, 1).to(state.c.dtype) for leaf in last))

    def _scan(
        self, x: Tensor, state: LSTMState, reset: Tensor | None, lengths: Tensor | None
    ) -> tuple[Tensor, LSTMState]:
        """Runs each layer as a scan."""
        start, after = self.start(), []
        for layer, weights in enumerate(self.lstm.all_weights):
            initial_state = None if start is None else LSTMState(*(leaf[layer] for leaf in start))
            before = LSTMState(*(leaf[:, layer] for leaf in state))
            x, last = run_as_scan(lstm_step, weights, x, before, initial_state, reset, lengths)
            after.append(last)
        return x, LSTMState(*(torch.stack(leaves, dim=1) for leaves in zip(*after, strict=True)))
