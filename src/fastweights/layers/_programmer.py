"""The general form of a fast weight programmer: any slow net, any cell."""

import inspect
from typing import Any, NamedTuple

from torch import Tensor, nn

from fastweights.cell import Cell
from fastweights.errors import InputError
from fastweights.layers._begin import begin
from fastweights.layers._fast_weight import FastWeight
from fastweights.layers._programmed import check_layer_input
from fastweights.state import with_methods


@with_methods
class ProgrammerState(NamedTuple):
    """The slow net's state, () for one without, and the fast net's."""

    slow: Any
    fast: Any


class FastWeightProgrammer(nn.Module):
    """slow[t] = SlowNet(x[t]), then theta[t], y[t] = cell(theta[t-1], W slow[t]): two nets, one programs the other.

    The slow net is a layer with the common interface, such as an LSTM, or any module that maps `[B, T, D]` to
    `[B, T, d_slow]`, such as an MLP. A linear map turns what it says into keys, values and rates.

    Source: Irie et al. 2021, Eqs. 1-4; Schmidhuber 1991.

    Args:
        slow_net: The slow net.
        cell: The fast net: a name, a `Cell`, a step or a rule.
        d_slow: Size of the slow net's output, and of y.
        heads: Number of fast nets.
        backend: The backend of `scan`.
    """

    def __init__(self, slow_net: nn.Module, cell: Any, d_slow: int, heads: int = 8, backend: str = "auto") -> None:
        super().__init__()
        self.slow_net = slow_net
        self.has_state = "state" in inspect.signature(slow_net.forward).parameters
        cell = Cell.named(cell) if isinstance(cell, str) else cell
        self.fast_net = FastWeight(d_slow, heads, cell, backend=backend)

    def forward(
        self, x: Tensor, state: ProgrammerState | None = None, reset: Tensor | None = None
    ) -> tuple[Tensor, ProgrammerState]:
        """The interface of a layer."""
        slow, fast = begin(x, state, self.initial_state(len(x)), reset)
        if self.has_state:
            said, slow = self.slow_net(x, slow, reset)
        else:
            said = self._say(x)
        y, fast = self.fast_net(said, fast, reset)
        return y, ProgrammerState(slow, fast)

    def _say(self, x: Tensor) -> Tensor:
        check_layer_input(x, x.shape[-1])
        try:
            said: Tensor = self.slow_net(x)
        except RuntimeError as error:
            raise InputError(f"x must be what the slow net takes, got {list(x.shape)}: {error}") from None
        return said

    def initial_state(self, batch_size: int) -> ProgrammerState:
        """Both nets'."""
        slow = self.slow_net.initial_state(batch_size) if self.has_state else ()  # type: ignore[operator]
        return ProgrammerState(slow, self.fast_net.initial_state(batch_size))
