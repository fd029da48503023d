"""Running maxima, m[t] = max(m[t-1] + plus[t], floor[t]), for all time steps at once."""

import torch
from torch import Tensor
from torch.nn.functional import pad

from fastweights.call.scan_call import ScanCall
from fastweights.core.padding import mask_steps


def running_max(m: Tensor, plus: Tensor, floor: Tensor, start: Tensor | None, call: ScanCall) -> tuple[Tensor, Tensor]:
    """m before and after every step, `[B, T, H]`. A reset sets m to `start`, and padding does not change it.

    Every step is a map x -> max(x + plus, floor), and so are several steps. Every round joins twice as many.
    """
    reset = None if call.tensors.reset is None else call.tensors.reset[..., None]
    if reset is not None and start is not None:
        floor = torch.where(reset, torch.maximum(start[:, None] + plus, floor), floor)
        plus = torch.where(reset, -torch.inf, plus)
    if call.valid is not None:
        plus, floor = mask_steps(call.valid, plus), mask_steps(call.valid, floor, -torch.inf)
    joined = 1
    while joined < plus.shape[1]:
        floor = torch.maximum(later(floor, joined, -torch.inf) + plus, floor)
        plus = plus + later(plus, joined)
        joined *= 2
    after = torch.maximum(m[:, None] + plus, floor)
    if reset is None or start is None:
        return torch.cat([m[:, None], after[:, :-1]], 1), after
    # A NaN in the carried state must not pass a reset.
    after = torch.where(reset.cumsum(1) > 0, floor, after)
    return torch.where(reset, start[:, None], torch.cat([m[:, None], after[:, :-1]], 1)), after


def later(x: Tensor, steps: int, fill: float = 0.0) -> Tensor:
    """`[B, T, ...]` shifted by a number of steps, with `fill` in front."""
    return pad(x[:, :-steps], [0, 0] * (x.ndim - 2) + [steps, 0], value=fill)
