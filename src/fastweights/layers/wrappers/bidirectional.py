"""Two layers that read a sequence from both ends."""

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from fastweights.core.errors import require
from fastweights.layers.base.layer import Controls, Layer, call_layer, controls_of
from fastweights.state import register_state


@register_state
class BidirectionalState(NamedTuple):
    """The final states of both directions: after the last step, and after the first step. None initially."""

    forward: Any
    backward: Any


class Bidirectional(Layer):
    """Runs one layer forwards and another layer backwards in time, and adds the outputs.

        y_t = forward(x_1, ..., x_t) + backward(x_T, ..., x_t)

    Use it in encoders, which read whole sequences. The state holds the final states of both directions, but no call can
    continue from it. A reset begins a new sequence in both directions. With `lengths` the second layer starts at the
    last time step of each sequence.

    Source: Schuster and Paliwal 1997 (doi:10.1109/78.650093).

    Args:
        forward_layer: Layer that reads the sequence from the first time step to the last.
        backward_layer: Layer of the same size that reads the sequence from the last time step to the first.

    Example:
        >>> from fastweights.layers import DeltaNet
        >>> layer = Bidirectional(DeltaNet(16, num_heads=2), DeltaNet(16, num_heads=2))
        >>> y, state = layer(torch.randn(2, 10, 16), lengths=torch.tensor([10, 7]))
        >>> y.shape
        torch.Size([2, 10, 16])
    """

    def __init__(self, forward_layer: nn.Module, backward_layer: nn.Module) -> None:
        super().__init__()
        self.forward_layer = forward_layer
        self.backward_layer = backward_layer
        self.input_size = getattr(forward_layer, "input_size", None)
        self.controls = controls_of(forward_layer, backward_layer)

    def check_state(self, state: Any, x: Tensor) -> None:
        """Returns None; `InputError` if the state is not the initial one."""
        fits = isinstance(state, BidirectionalState) and state.forward is None and state.backward is None
        remedy = "Pass all steps in one call."
        require(
            fits, "state", "None, since both directions start at an end of the sequence", type(state).__name__, remedy
        )

    def run(
        self, x: Tensor, state: None, reset: Tensor | None, lengths: Tensor | None, controls: Controls
    ) -> tuple[Tensor, BidirectionalState]:
        """Runs the layer on checked inputs."""
        y, last = call_layer(self.forward_layer, x, None, reset, lengths, controls)
        # In the reversed order, the step before a reset is the first of its sequence.
        ends = None if reset is None else _reverse(pad(reset[:, 1:], (0, 1)), lengths)
        marks = {name: _reverse(mark, lengths) for name, mark in controls.items()}
        y_back, first = call_layer(self.backward_layer, _reverse(x, lengths), None, ends, lengths, marks)
        return y + _reverse(y_back, lengths), BidirectionalState(last, first)

    def initial_state(self, batch_size: int) -> BidirectionalState:
        """Returns the state before any step."""
        return BidirectionalState(None, None)


def _reverse(x: Tensor, lengths: Tensor | None) -> Tensor:
    """x `[B, T, ...]` with the steps of every member, not its padding, in the opposite order."""
    if lengths is None:
        return x.flip(1)
    time, end = torch.arange(x.shape[1], device=x.device), lengths.unsqueeze(1)
    order = torch.where(time < end, end - 1 - time, time)
    return x.take_along_dim(order.view(*order.shape, *[1] * (x.ndim - 2)), dim=1)
