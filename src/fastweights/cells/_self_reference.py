"""The self-modification that the self-referential cells share."""

from collections.abc import Iterable

import torch
from torch import Tensor


def modify(
    shifts: Iterable[Tensor], matrices: Iterable[Tensor], q: Tensor, k: Tensor, rates: Iterable[Tensor]
) -> list[Tensor]:
    """A <- A + rate (A q - A k) k^T for every matrix A, as a change of its shift from its start."""
    each = zip(shifts, matrices, rates, strict=True)
    return [shift + rate * torch.outer(A @ (q - k), k) for shift, A, rate in each]
