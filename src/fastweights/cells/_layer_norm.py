"""Layer normalisation inside a step."""

from torch import Tensor

EPS = 1e-5
"""Added to the variance, as in PyTorch."""


def standardise(x: Tensor) -> Tensor:
    """(x - mean) / sqrt(variance + EPS) over the last axis."""
    centred = x - x.mean(-1, keepdim=True)
    return centred * (centred.square().mean(-1, keepdim=True) + EPS).rsqrt()
