"""Running maxima, m[t] = max(m[t-1] + plus[t], floor[t]), for all time steps at once."""

import torch
from torch import Tensor
from torch.nn.functional import pad

from fastweights.backends.chunkwise.fused_max import fused_max
from fastweights.backends.chunkwise.fused_scan import missing_here
from fastweights.call.scan_call import ScanCall
from fastweights.core.padding import mask_steps


def running_max(
    m: Tensor, plus: Tensor, floor: Tensor, start: Tensor | None, call: ScanCall
) -> tuple[Tensor, Tensor, Tensor]:
    """m before and after every step, `[B, T, H]`, and the last m. A reset sets m to `start`; padding keeps m."""
    reset = None if call.tensors.reset is None else call.tensors.reset[..., None]
    if reset is not None and start is not None:
        floor = torch.where(reset, torch.maximum(start[:, None] + plus, floor), floor)
        plus = torch.where(reset, -torch.inf, plus)
    if call.valid is not None:
        plus, floor = mask_steps(call.valid, plus), mask_steps(call.valid, floor, -torch.inf)
    if missing_here(m.device.type):
        before, after, last = _in_rounds(m, plus.to(m.dtype), floor.to(m.dtype), reset)
    else:
        before, after, last = fused_max(plus, floor, m)
    if reset is not None and start is not None:
        before = torch.where(reset, start[:, None], before)
    return before, after, last


def _in_rounds(m: Tensor, plus: Tensor, floor: Tensor, reset: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """`fused_max` in PyTorch: every step is a map x -> max(x + plus, floor), and every round joins twice as many."""
    joined = 1
    while joined < plus.shape[1]:
        floor = torch.maximum(later(floor, joined, -torch.inf) + plus, floor)
        plus = plus + later(plus, joined)
        joined *= 2
    after = torch.maximum(m[:, None] + plus, floor)
    if reset is not None:
        # A NaN in the carried state must not pass a reset.
        after = torch.where(reset.cumsum(1) > 0, floor, after)
    return torch.cat([m[:, None], after[:, :-1]], 1), after, after[:, -1]


def later(x: Tensor, steps: int, fill: float = 0.0) -> Tensor:
    """`[B, T, ...]` shifted by a number of steps, with `fill` in front."""
    return pad(x[:, :-steps], [0, 0] * (x.ndim - 2) + [steps, 0], value=fill)
