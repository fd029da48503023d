"""Resets and lengths for the recurrent networks of `torch.nn`, which know neither: they run stretch by stretch."""

from collections.abc import Callable
from typing import TypeVar

import torch
from torch import Tensor

from fastweights.backends.reference import where

State = TypeVar("State")
Run = Callable[[Tensor, State], tuple[Tensor, State]]


def run_in_stretches(
    run: Run[State],
    x: Tensor,
    state: State | None,
    initial: State,
    reset: Tensor | None,
    lengths: Tensor | None,
) -> tuple[Tensor, State]:
    """Calls `run(x, state) -> (y, state)` on every stretch of x `[B, T, D]` in which no member begins or ends anew.

    A member that is reset before step t (`reset` bool `[B, T]`) goes on from `initial`; one that has ended (`lengths`
    int `[B]`) keeps its state.
    """
    state = initial if state is None else state
    outputs = []
    for start, stop in _stretches(x, reset, lengths):
        if reset is not None:
            state = where(reset[:, start], initial, state)
        y, after = run(x[:, start:stop], state)
        state = after if lengths is None else where(lengths > start, after, state)
        outputs.append(y)
    return torch.cat(outputs, dim=1), state


def _stretches(x: Tensor, reset: Tensor | None, lengths: Tensor | None) -> list[tuple[int, int]]:
    """Stretches of time inside which no member of the batch is reset and none ends; one where nothing has numbers."""
    steps, cuts = x.shape[1], set()
    if reset is not None and not x.is_meta:
        cuts |= set(reset.any(dim=0).nonzero().flatten().tolist())
    if lengths is not None and not x.is_meta:
        cuts |= set(lengths.tolist())
    inner = sorted(cut for cut in cuts if 0 < cut < steps)
    return list(zip([0, *inner], [*inner, steps], strict=True))
