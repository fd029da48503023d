"""Normalisation by the sum."""

from torch import Tensor

EPS = 1e-5
"""Keeps a key without any positive feature (DPFP can have one) at 0 instead of 0/0."""


def sum(x: Tensor) -> Tensor:
    """x / sum x, for positive features: without it models with the delta rule diverge.

    Source: Schlag et al. 2021, Eq. 29; EPS as in the authors' reinforcement-learning code.
    """
    return x / (x.sum(dim=-1, keepdim=True) + EPS)
