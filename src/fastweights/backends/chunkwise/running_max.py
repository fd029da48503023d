"""Scalars that are maxima, m[t] = max(m[t-1] + plus[t], floor[t]), for all time at once."""

import torch
from torch import Tensor
from torch.nn.functional import pad

from fastweights.call.call import Problem
from fastweights.core.padding import only


def maxima(m: Tensor, plus: Tensor, floor: Tensor, start: Tensor | None, problem: Problem) -> tuple[Tensor, Tensor]:
    """m before and after every step, `[B, T, H]`; a reset goes back to `start`, and padding changes nothing.

    Every step is a map x -> max(x + plus, floor), and so are several: every round joins those of twice as many.
    """
    reset = None if problem.reset is None else problem.reset[..., None]
    if reset is not None and start is not None:
        floor = torch.where(reset, torch.maximum(start[:, None] + plus, floor), floor)
        plus = torch.where(reset, -torch.inf, plus)
    if problem.inside is not None:
        plus, floor = only(problem.inside, plus), only(problem.inside, floor, -torch.inf)
    joined = 1
    while joined < plus.shape[1]:
        floor = torch.maximum(later(floor, joined, -torch.inf) + plus, floor)
        plus = plus + later(plus, joined)
        joined *= 2
    after = torch.maximum(m[:, None] + plus, floor)
    if reset is None or start is None:
        return torch.cat([m[:, None], after[:, :-1]], 1), after
    # Not even a NaN of the carried state is left behind a reset.
    after = torch.where(reset.cumsum(1) > 0, floor, after)
    return torch.where(reset, start[:, None], torch.cat([m[:, None], after[:, :-1]], 1)), after


def later(x: Tensor, steps: int, fill: float = 0.0) -> Tensor:
    """`[B, T, ...]` so many steps later."""
    return pad(x[:, :-steps], [0, 0] * (x.ndim - 2) + [steps, 0], value=fill)
