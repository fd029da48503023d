"""Resets and lengths for the recurrent networks of `torch.nn`, which support neither: they run segment by segment.

torch exports them for a fixed number of steps, and segments depend on data, so a scan is exported instead.
"""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.nn.functional import linear

from fastweights.cell import Cell
from fastweights.dispatch import scan
from fastweights.state import where

State = TypeVar("State")
Run = Callable[[Tensor, State], tuple[Tensor, State]]


def run_in_segments(
    run: Run[State],
    x: Tensor,
    state: State | None,
    start: Callable[[int], State],
    reset: Tensor | None,
    lengths: Tensor | None,
) -> tuple[Tensor, State]:
    """Calls `run(x, state) -> (y, state)` on each segment of x `[B, T, D]` without a reset or an end inside.

    Without a state, the first segment starts from `start(B)`. A member that is reset before step t (`reset` bool
    `[B, T]`) returns to it; one that has ended (`lengths` int `[B]`) keeps its state.
    """
    if reset is None and lengths is None:
        return run(x, start(len(x)) if state is None else state)
    initial_state = start(len(x))
    state = initial_state if state is None else state
    outputs = []
    for first, end in _segments(x, reset, lengths):
        if reset is not None:
            state = where(reset[:, first], initial_state, state)
        y, after = run(x[:, first:end], state)
        state = after if lengths is None else where(lengths > first, after, state)
        outputs.append(y)
    return torch.cat(outputs, dim=1), state


def _segments(x: Tensor, reset: Tensor | None, lengths: Tensor | None) -> list[tuple[int, int]]:
    """Segments of time without a reset or an end inside; a single one on the meta device."""
    steps, cuts = x.shape[1], set()
    if reset is not None and not x.is_meta:
        cuts |= set(reset.any(dim=0).nonzero().flatten().tolist())
    if lengths is not None and not x.is_meta:
        cuts |= set(lengths.tolist())
    inner = sorted(cut for cut in cuts if 0 < cut < steps)
    return list(zip([0, *inner], [*inner, steps], strict=True))


def run_as_scan(
    step: Callable[..., Any],
    weights: Sequence[Tensor],
    x: Tensor,
    state: Any,
    initial_state: Any,
    reset: Tensor | None,
    lengths: Tensor | None,
) -> tuple[Tensor, Any]:
    """Runs one layer of such a network as a scan, with any number of steps, resets and lengths.

    `weights` are torch's [C, R, b, b']. The inputs of the step are the parts of C x + b + b', and its parameters those
    of R, for every gate. `state` has leaves `[B, D]`, `initial_state` leaves `[D]`; None for zeros.
    """
    cell, (C, R, *biases) = Cell.from_function(step), weights
    assert cell.Params is not None
    gates = len(cell.slots["Params"])
    inputs = cell.Inputs(*linear(x, C, torch.stack(biases).sum(0)).unsqueeze(2).chunk(gates, dim=-1))
    params = cell.Params(*R.unsqueeze(0).chunk(gates, dim=1))
    start = None if initial_state is None else type(initial_state)(*(leaf.unsqueeze(0) for leaf in initial_state))
    before = type(state)(*(leaf.unsqueeze(1) for leaf in state))
    y, last = scan(cell, inputs, before, params, reset, lengths, start)
    return y.squeeze(2), type(state)(*(leaf.squeeze(1) for leaf in last))
