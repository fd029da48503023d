"""Normalisation by the Euclidean length."""

from torch import Tensor

EPS = 1e-6
"""Added to the squared length, so that a zero key stays 0, with a finite gradient."""


def l2(x: Tensor) -> Tensor:
    """Divides a key or query by its Euclidean length.

        y = x / |x|

    The delta rule with rates up to 2 is then stable for keys of any sign.

    Source: Yang et al. 2024 (Parallelizing Linear Transformers with the Delta Rule, arXiv:2406.06484), Sec. 3.3.

    Args:
        x: Keys or queries `[..., K]`.

    Returns:
        The normalised keys or queries, of the same shape.
    """
    return x * (x.square().sum(dim=-1, keepdim=True) + EPS).rsqrt()
