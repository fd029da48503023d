"""A layer whose state is reset periodically."""

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from fastweights.core.arguments import Size
from fastweights.core.padding import at_end
from fastweights.layers.base.layer import Controls, Layer, call_layer, controls_of
from fastweights.layers.base.like import zeros
from fastweights.state import register_state


@register_state
class PeriodicResetState(NamedTuple):
    """The state of the layer, and the number of steps since its last reset, int `[B]`."""

    layer: Any
    age: Tensor


class PeriodicReset(Layer):
    """Resets the state of a layer periodically: a memory with a limited span.

    The state returns to the initial state before every `period`-th time step.

    Source: Irie et al. 2022 (arXiv:2202.05780), Sec. 4.3 (ablation on state reset).

    Args:
        layer: Layer to reset.
        period: Number of time steps between two resets.

    Example:
        >>> from fastweights.layers import DeltaNet
        >>> layer = PeriodicReset(DeltaNet(16, num_heads=2), period=5)
        >>> y, state = layer(torch.randn(2, 10, 16))
        >>> y.shape
        torch.Size([2, 10, 16])
    """

    def __init__(self, layer: nn.Module, period: Size) -> None:
        super().__init__()
        self.input_size = getattr(layer, "input_size", None)
        self.controls = controls_of(layer)
        self.layer = layer
        self.period = period

    def run(
        self,
        x: Tensor,
        state: PeriodicResetState | None,
        reset: Tensor | None,
        lengths: Tensor | None,
        controls: Controls,
    ) -> tuple[Tensor, PeriodicResetState]:
        """Runs the layer on checked inputs."""
        inner, age = self.initial_state(x.shape[0]) if state is None else state
        before, age = ages(age, reset, lengths, x.shape[1])
        y, inner = call_layer(self.layer, x, inner, before % self.period == 0, lengths, controls)
        return y, PeriodicResetState(inner, age)

    def initial_state(self, batch_size: int) -> PeriodicResetState:
        """Returns the initial state of the layer, of age 0."""
        inner = self.layer.initial_state(batch_size)  # type: ignore[operator]
        return PeriodicResetState(inner, zeros(self.layer, batch_size, dtype=torch.long))


def ages(age: Tensor, reset: Tensor | None, lengths: Tensor | None, steps: int) -> tuple[Tensor, Tensor]:
    """Steps since the last reset or the start, before every step `[B, T]` and after the last one `[B]`."""
    time = torch.arange(steps + 1, device=age.device)
    since = age.unsqueeze(-1) + time
    if reset is not None:
        # No step is reset after the last one.
        last_reset = torch.where(nn.functional.pad(reset, (0, 1)), time, -1).cummax(dim=1).values
        since = torch.where(last_reset >= 0, time - last_reset, since)
    return since[:, :-1], since[:, -1] if lengths is None else at_end(since, lengths)
