"""The general form of a fast weight programmer: any slow network, any cell."""

import inspect
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from fastweights.core.arguments import Size
from fastweights.core.errors import invalid
from fastweights.layers.base.layer import Controls, Layer, call_layer, controls_of
from fastweights.layers.base.like import zeros
from fastweights.state import register_state


@register_state
class ProgrammerState(NamedTuple):
    """The states of the slow network (or ()) and the fast network, and the last y `[B, D]` (or () if unused)."""

    slow: Any
    fast: Any
    y: Any


class FastWeightProgrammer(Layer):
    """General fast weight programmer: any slow network programs any layer over a cell.

        slow_t = SlowNet(x_t, y_(t-1))
        theta_t = write(theta_(t-1), slow_t)
        y_t = read(theta_t, slow_t)

    The slow network is a layer with the common interface, such as an LSTM, or any module that maps `[B, T, .]` to `[B,
    T, D]`, such as an MLP. The fast network is any layer over a cell. Its linear map turns the outputs of the slow
    network into keys, values and rates, so that a linear slow network would add nothing.

    With `output_feedback` the input of the slow network is [x_t, y_(t-1)], with y = 0 before the first step. The layer
    then runs step by step. Otherwise the slow network runs over all time steps at once.

    Source: Irie et al. 2021 (arXiv:2106.06295), Eqs. 1-4; Schmidhuber 1992 (doi:10.1162/neco.1992.4.1.131).

    Args:
        slow_net: Slow network.
        fast_net: Layer over a cell, of size D, such as `make_layer("delta-rnn", d_model=D, num_heads=4)`.
        d_slow: Size D of y and of the output of the slow network.
        output_feedback: Whether y_(t-1) is appended to the input x_t of the slow network.

    Example:
        >>> from fastweights.layers import LSTM, DeltaNet
        >>> layer = FastWeightProgrammer(LSTM(16), DeltaNet(16, num_heads=2), d_slow=16)
        >>> y, state = layer(torch.randn(2, 10, 16))
        >>> y.shape
        torch.Size([2, 10, 16])
    """

    def __init__(self, slow_net: nn.Module, fast_net: nn.Module, d_slow: Size, output_feedback: bool = False) -> None:
        super().__init__()
        self.slow_net = slow_net
        self.has_state = "state" in inspect.signature(slow_net.forward).parameters
        self.fast_net = fast_net
        self.d_slow = d_slow
        self.output_feedback = output_feedback
        size = getattr(slow_net, "input_size", None)
        self.input_size = size - d_slow if size and output_feedback else size
        self.controls = controls_of(slow_net, fast_net)

    def run(
        self, x: Tensor, state: ProgrammerState | None, reset: Tensor | None, lengths: Tensor | None, controls: Controls
    ) -> tuple[Tensor, ProgrammerState]:
        """Runs the layer on checked inputs."""
        state = self.initial_state(x.shape[0]) if state is None else state
        if not self.output_feedback:
            return self._program(x, state, reset, lengths, controls)
        if torch.compiler.is_exporting() and isinstance(x.shape[1], torch.SymInt):
            remedy = "Export it for so many steps, or without output_feedback."
            raise invalid(
                "x", "a sequence with a fixed number of steps, because of output_feedback", "a dynamic one", remedy
            )
        outputs = []
        for t in range(x.shape[1]):
            now = None if reset is None else reset[:, t : t + 1]
            remaining = None if lengths is None else (lengths - t).clamp(0, 1)
            before = state.y if now is None else torch.where(now, 0.0, state.y)
            inputs = torch.cat([x[:, t], before.to(x.dtype)], dim=-1).unsqueeze(1)
            marks = {name: mark[:, t : t + 1] for name, mark in controls.items()}
            y, state = self._program(inputs, state, now, remaining, marks)
            last = y[:, 0].to(before.dtype)
            state = state._replace(
                y=last if remaining is None else torch.where(remaining.unsqueeze(1) > 0, last, before)
            )
            outputs.append(y)
        return torch.cat(outputs, dim=1), state

    def _program(
        self, x: Tensor, state: ProgrammerState, reset: Tensor | None, lengths: Tensor | None, controls: Controls
    ) -> tuple[Tensor, ProgrammerState]:
        if self.has_state:
            emitted, slow = call_layer(self.slow_net, x, state.slow, reset, lengths, controls)
        else:
            emitted, slow = self._emit(x), ()
        y, fast = call_layer(self.fast_net, emitted, state.fast, reset, lengths, controls)
        return y, ProgrammerState(slow, fast, state.y)

    def _emit(self, x: Tensor) -> Tensor:
        try:
            emitted: Tensor = self.slow_net(x)
        except RuntimeError as error:
            raise invalid("x", "an input that the slow network takes", f"{list(x.shape)} ({error})") from None
        return emitted

    def initial_state(self, batch_size: int) -> ProgrammerState:
        """Returns the initial states of both networks, and y = 0."""
        slow = self.slow_net.initial_state(batch_size) if self.has_state else ()  # type: ignore[operator]
        y = zeros(self.fast_net, batch_size, self.d_slow) if self.output_feedback else ()
        return ProgrammerState(slow, self.fast_net.initial_state(batch_size), y)  # type: ignore[operator]
