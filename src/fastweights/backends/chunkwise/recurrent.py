"""States that are not affine, step by step: scalars such as a number of tokens, and the recurrent part of a cell."""

from collections.abc import Mapping

import torch
from torch import Tensor

from fastweights.backends.chunkwise.lowering import RecurrentStage
from fastweights.call.scan_call import ScanCall
from fastweights.state import where

States = dict[str, Tensor]
"""States `[B, H, ...]` by name."""


def looped(stage: RecurrentStage, call: ScanCall, named: Mapping[str, Tensor]) -> tuple[States, States]:
    """The states `[B, T, H, ...]` that other stages read, before and after every step, and the last states, by name."""
    last, inside = {state: call.tensors.state[state] for state in stage.before}, call.inside
    time = {name: named[name].unbind(1) for name in stage.function.moving if name in named}
    still = {name: named[name] for name in stage.function.still}
    steps: dict[str, list[Tensor]] = {name: [] for name in stage.read}
    for t in range(call.plan.leading[1]):
        before = _reset(last, call, t)
        last = _after(stage, before, {name: x[t] for name, x in time.items()} | still, call)
        if inside is not None:
            last = where(inside[:, t], last, before)
        both = {stage.before[s]: x for s, x in before.items()} | {stage.after[s]: x for s, x in last.items()}
        for name, xs in steps.items():
            xs.append(both[name])
    return {name: torch.stack(xs, 1) for name, xs in steps.items()}, last


def _reset(last: States, call: ScanCall, t: int) -> States:
    """The states before a step, with the initial state where a reset is."""
    reset = call.tensors.reset
    if reset is None:
        return last
    return where(reset[:, t], {state: call.tensors.initial_state[state] for state in last}, last)


def _after(stage: RecurrentStage, before: States, named: States, call: ScanCall) -> States:
    """The states after a step."""
    named = named | {stage.before[state]: x for state, x in before.items()}
    function, (B, _, H) = stage.function, call.plan.leading
    new = function.run((B, H), *(named[name] for name in (*function.moving, *function.still)))
    return {state: x.expand(before[state].shape) for state, x in zip(stage.before, new, strict=True)}
