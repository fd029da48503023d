"""Tolerances of results compared with the float64 reference."""

from typing import NamedTuple

import torch
from torch import Tensor


class Tolerance(NamedTuple):
    """Bounds on the relative root mean square error of results and of gradients."""

    forward: float
    gradient: float


TOLERANCES = {
    torch.float64: Tolerance(1e-12, 1e-11),
    torch.float32: Tolerance(1e-5, 1e-4),
    torch.bfloat16: Tolerance(4e-3, 8e-3),
    torch.float16: Tolerance(1e-3, 2e-3),
}


INT8 = 0.25
"""Bound for linear maps in int8 compared with float32: one map is off by about 1 %, which recurrence amplifies."""


def tolerance(dtype: torch.dtype) -> Tolerance:
    """The bounds for inputs of a dtype."""
    return TOLERANCES[dtype]


def error(got: Tensor, want: Tensor, least: float = 0.0) -> float:
    """Root mean square error relative to `want` or, if it is shorter, to a vector of length `least`.

    Of two zeros 0, of anything with a NaN infinity.
    """
    got, want = got.detach().double(), want.detach().double()
    if got.shape != want.shape or not torch.isfinite(got).all():
        return float("inf")
    distance, size = (got - want).norm(), want.norm().clamp(min=least)
    return 0.0 if distance == 0 else (distance / size).item()
