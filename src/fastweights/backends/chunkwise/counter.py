"""Scalars that are any function of themselves, such as the number of tokens modulo a period, step by step."""

from collections.abc import Mapping

import torch
from torch import Tensor

from fastweights.backends.chunkwise.lowering import CounterStage
from fastweights.call.scan_call import ScanCall


def counted(stage: CounterStage, call: ScanCall, named: Mapping[str, Tensor]) -> tuple[Tensor, Tensor, Tensor]:
    """The scalar before and after every step, `[B, T, H]`, and the last one, `[B, H]`."""
    B, T, H = call.plan.leading
    last, reset, inside = call.tensors.state[stage.state], call.tensors.reset, call.inside
    time = {name: named[name].unbind(1) for name in stage.function.moving if name != stage.before}
    still = [named[name] for name in stage.function.still]
    before: list[Tensor] = []
    after: list[Tensor] = []
    for t in range(T):
        if reset is not None:
            last = torch.where(reset[:, t, None], call.tensors.initial_state[stage.state], last)
        before.append(last)
        moving = [last if name == stage.before else time[name][t] for name in stage.function.moving]
        (new,) = stage.function.run((B, H), *moving, *still)
        last = new.expand(B, H) if inside is None else torch.where(inside[:, t, None], new, last)
        after.append(last)
    return torch.stack(before, 1), torch.stack(after, 1), last
