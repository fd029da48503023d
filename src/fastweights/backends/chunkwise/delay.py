"""States that only delay values, such as the last key or the window of a short convolution, for all steps at once."""

from collections.abc import Mapping

import torch
from torch import Tensor

from fastweights.backends.chunkwise.lowering import DelayStage, evaluate
from fastweights.call.scan_call import FILL, ScanCall
from fastweights.core.padding import at_end


def run_delay(stage: DelayStage, call: ScanCall, named: Mapping[str, Tensor]) -> tuple[Tensor, Tensor, Tensor]:
    """The state before and after every step, `[B, T, H, ...]`, and the last one, `[B, H, ...]`.

    The new state is a function of the one before. It is computed `stage.steps` times for all steps at once, from any
    first guess, since nothing is left of the guess then.
    """
    start = call.tensors.state[stage.state]
    before = start.new_full((), FILL).expand(*call.plan.leading, *start.shape[2:])
    for _ in range(stage.steps):
        (after,) = evaluate(stage.function, call, {**named, stage.before: before})
        whole = torch.cat([start[:, None], after.expand(before.shape)], 1)
        before = _reset(whole[:, :-1], stage, call)
    lengths = call.tensors.lengths
    return before, whole[:, 1:], whole[:, -1] if lengths is None else at_end(whole, lengths)


def _reset(before: Tensor, stage: DelayStage, call: ScanCall) -> Tensor:
    """The states before every step, with the initial state where a reset is."""
    reset = call.tensors.reset
    if reset is None:
        return before
    initial = call.tensors.initial_state[stage.state]
    return torch.where(reset.view(*reset.shape, *[1] * (before.ndim - 2)), initial[:, None], before)
