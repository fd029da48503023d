"""A layer whose state is cleared at fixed times."""

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from fastweights.errors import require
from fastweights.layers._begin import begin
from fastweights.state import with_methods


@with_methods
class ResetEveryState(NamedTuple):
    """The layer's state, and the steps since it was last clear, int `[B]`."""

    layer: Any
    age: Tensor


class ResetEvery(nn.Module):
    """A layer whose state goes back to the initial one before every `steps`-th step: a memory without carry-over.

    Source: Irie et al. 2022, Sec. 4.3 (ablation on state reset).
    """

    def __init__(self, layer: nn.Module, steps: int) -> None:
        super().__init__()
        require(steps >= 1, "steps", "at least 1", steps)
        self.layer = layer
        self.steps = steps

    def forward(
        self, x: Tensor, state: ResetEveryState | None = None, reset: Tensor | None = None
    ) -> tuple[Tensor, ResetEveryState]:
        """The interface of a layer."""
        inner, age = begin(x, state, self.initial_state(len(x)), reset)
        before = ages(age, reset, x.shape[1])
        y, inner = self.layer(x, inner, before % self.steps == 0)
        return y, ResetEveryState(inner, before[:, -1] + 1)

    def initial_state(self, batch_size: int) -> ResetEveryState:
        """The layer's, of age 0."""
        inner = self.layer.initial_state(batch_size)  # type: ignore[operator]
        device = next(self.layer.parameters()).device
        return ResetEveryState(inner, torch.zeros(batch_size, dtype=torch.long, device=device))


def ages(age: Tensor, reset: Tensor | None, steps: int) -> Tensor:
    """Steps since the last reset or the start, before every step, `[B, T]`."""
    time = torch.arange(steps, device=age.device)
    since_start = age.unsqueeze(-1) + time
    if reset is None:
        return since_start
    last = torch.where(reset, time, -1).cummax(dim=1).values
    return torch.where(last >= 0, time - last, since_start)
