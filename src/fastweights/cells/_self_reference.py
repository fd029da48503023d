"""Self-modification and learning rates of self-referential cells."""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor


def modify(
    shifts: Iterable[Tensor], matrices: Iterable[Tensor], q: Tensor, k: Tensor, rates: Iterable[Tensor]
) -> list[Tensor]:
    """A <- A + rate (A q - A k) k^T for every matrix A, as a change of its shift from its start."""
    each = zip(shifts, matrices, rates, strict=True)
    return [shift + rate * torch.outer(A @ (q - k), k) for shift, A, rate in each]


def four_rates(state: Any, x: Any, params: Any) -> dict[str, Tensor]:
    """The rates sigmoid(W_beta x) of the matrices W_y, W_q, W_k and W_beta, by name."""
    names = ("beta_y", "beta_q", "beta_k", "beta_beta")
    return dict(zip(names, ((params.W_beta + state.W_beta) @ x.x).sigmoid().unbind(), strict=True))
