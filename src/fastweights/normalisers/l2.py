"""Normalisation by the Euclidean length."""

from torch import Tensor

EPS = 1e-6
"""Added to the squared length, so that a zero key stays 0, with a finite gradient."""


def l2(x: Tensor) -> Tensor:
    """x / |x|: with rates up to 2 the delta rule stays stable for keys of any sign.

    Source: Yang et al. 2024 (Parallelizing Linear Transformers with the Delta Rule), Sec. 3.3.
    """
    return x * (x.square().sum(dim=-1, keepdim=True) + EPS).rsqrt()
