"""The multi-level fast-weight RNN of Ba et al. as a layer."""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from fastweights.core.arguments import NotNegative, Size
from fastweights.layers.base.fast_weight_network import FastWeightNetwork
from fastweights.layers.base.layer import NO_CONTROLS, Controls
from fastweights.layers.base.like import zeros
from fastweights.layers.base.validation import fit_state
from fastweights.layers.wrappers.periodic_reset import ages
from fastweights.state import register_state


@register_state
class MultiLevelState(NamedTuple):
    """The state of the cell, and the number of steps so far, int `[B]`."""

    memory: Any
    age: Tensor


class MultiLevelFastWeightRNN(FastWeightNetwork):
    """Fast-weight RNN layer whose memory is written at marked steps.

        A <- lambda A + eta h h^T, h <- 0 "at the first step of a segment"
        z = W h + C x
        h_0 = relu(z)
        h_s = relu(LN(z + A h_(s-1))), s = 1, ..., S
        y = h <- h_S

    The controls "store" and "integrate" mark the steps. Without them a segment has `segment` steps: its last step uses
    the weights for integration, and the state is stored and cleared before the next segment. The paper does not say
    which steps it marks.

    Source: Ba et al. 2016 (arXiv:1610.06258), Sec. 4.2 and Fig. 3.

    Args:
        segment: Number of steps per segment if there are no marks.

    Example:
        >>> layer = MultiLevelFastWeightRNN(d_model=16, segment=5)
        >>> y, state = layer(torch.randn(2, 10, 16))
        >>> y.shape
        torch.Size([2, 10, 16])
    """

    def __init__(
        self,
        d_model: Size,
        num_heads: Size = 1,
        segment: Size = 6,
        inner_steps: Size = 1,
        decay: float = 0.95,
        rate: NotNegative = 0.5,
        input_size: Size | None = None,
        backend: str = "auto",
        initial_state: Any = "zero",
    ) -> None:
        cell = "multi-level-fast-weight-rnn"
        super().__init__(d_model, num_heads, cell, inner_steps, decay, rate, input_size, backend, initial_state)
        self.segment = segment

    def check_state(self, state: Any, x: Tensor) -> MultiLevelState:
        """Checks the state."""
        fitted: MultiLevelState = fit_state(state, self.initial_state(1), x)
        return fitted

    def run(
        self,
        x: Tensor,
        state: MultiLevelState | None,
        reset: Tensor | None,
        lengths: Tensor | None,
        controls: Controls = NO_CONTROLS,
    ) -> tuple[Tensor, MultiLevelState]:
        """Runs the layer on checked inputs."""
        memory, age = self.initial_state(x.shape[0]) if state is None else state
        steps, age = ages(age, reset, lengths, x.shape[1])
        position = steps % self.segment
        marks = {"store": (position == 0) & (steps > 0), "integrate": position == self.segment - 1, **controls}
        y, memory = super().run(x, memory, reset, lengths, marks)
        return y, MultiLevelState(memory, age)

    def initial_state(self, batch_size: int) -> MultiLevelState:
        """Returns the state of age 0."""
        return MultiLevelState(super().initial_state(batch_size), zeros(self, batch_size, dtype=torch.long))
