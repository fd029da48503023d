"""The multi-level fast-weight RNN of Ba et al. as a layer."""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from fastweights.errors import require
from fastweights.layers._begin import begin
from fastweights.layers._fast_weight_network import FastWeightNetwork
from fastweights.layers._programmed import check_layer_input
from fastweights.layers._reset_every import ages
from fastweights.state import with_methods


@with_methods
class MultiLevelState(NamedTuple):
    """The cell's state, and the number of steps so far, int `[B]`."""

    memory: Any
    age: Tensor


class MultiLevelFastWeightRNN(FastWeightNetwork):
    """A <- lambda A + eta h h^T and h <- 0 at marked steps; then h <- relu(LN(W h + C x + A h')) for S steps.

    The marks come with the data. Without them a segment has `segment` steps: its end uses the weights for integration,
    and the state is stored and wiped before the next one begins. The paper does not say which steps it marks.

    Source: Ba et al. 2016, Sec. 4.2 and Fig. 3.

    Args:
        d_model: Number of units of all heads, and size of the output.
        heads: Number of independent networks of d_model / heads units.
        segment: Steps of a segment where no marks are given.
        inner_steps: S.
        decay: lambda, from 0 to 1.
        rate: eta, at least 0.
        input_size: Size of the input; `d_model` if None.
        backend: The backend of `scan`.
    """

    def __init__(
        self,
        d_model: int,
        heads: int = 1,
        segment: int = 6,
        inner_steps: int = 1,
        decay: float = 0.95,
        rate: float = 0.5,
        input_size: int | None = None,
        backend: str = "auto",
    ) -> None:
        require(segment >= 1, "segment", "at least 1", segment)
        super().__init__(d_model, heads, "multi-level-fast-weight-rnn", inner_steps, decay, rate, input_size, backend)
        self.segment = segment

    def forward(
        self,
        x: Tensor,
        state: MultiLevelState | None = None,
        reset: Tensor | None = None,
        store: Tensor | None = None,
        integrate: Tensor | None = None,
    ) -> tuple[Tensor, MultiLevelState]:
        """x `[B, T, D]`; reset, store, integrate bool `[B, T]` -> y `[B, T, D]` and the state after the last step."""
        check_layer_input(x, self.slow_net.input_size)
        memory, age = begin(x, state, self.initial_state(len(x)), reset)
        steps = ages(age, reset, x.shape[1])
        store = (steps % self.segment == 0) & (steps > 0) if store is None else store
        integrate = steps % self.segment == self.segment - 1 if integrate is None else integrate
        for name, marks in {"store": store, "integrate": integrate}.items():
            require(marks.shape == x.shape[:2], name, f"[B, T] = {list(x.shape[:2])}", list(marks.shape))
        inputs = self.slow_net(x, {"store": store, "integrate": integrate})
        y, memory = self.read(inputs, memory, reset)
        return y, MultiLevelState(memory, steps[:, -1] + 1)

    def initial_state(self, batch_size: int) -> MultiLevelState:
        """No steps so far."""
        age = torch.zeros(batch_size, dtype=torch.long, device=next(self.parameters()).device)
        return MultiLevelState(super().initial_state(batch_size), age)
