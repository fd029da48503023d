"""Resets for the recurrent networks of `torch.nn`, which know none: stretches without a reset run in one call."""

from collections.abc import Callable
from typing import TypeVar

import torch
from torch import Tensor

from fastweights.backends.reference import where
from fastweights.layers._begin import begin

State = TypeVar("State")
Run = Callable[[Tensor, State], tuple[Tensor, State]]


def run_between_resets(
    run: Run[State], x: Tensor, state: State | None, initial: State, reset: Tensor | None
) -> tuple[Tensor, State]:
    """Calls `run(x, state) -> (y, state)` on every stretch of x `[B, T, D]` without a reset, and joins what it returns.

    A member of the batch that is reset before step t (`reset` bool `[B, T]`) goes on from `initial`.
    """
    state = begin(x, state, initial, reset)
    outputs = []
    for start, stop in _stretches(reset, x.shape[1]):
        if reset is not None:
            state = where(reset[:, start], initial, state)
        y, state = run(x[:, start:stop], state)
        outputs.append(y)
    return torch.cat(outputs, dim=1), state


def _stretches(reset: Tensor | None, steps: int) -> list[tuple[int, int]]:
    """Stretches of time inside which no member of the batch is reset."""
    resets = [] if reset is None else reset[:, 1:].any(dim=0).nonzero().flatten().add(1).tolist()
    return list(zip([0, *resets], [*resets, steps], strict=True))
