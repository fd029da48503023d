"""Rates between 0 and 1."""

from torch import Tensor


def sigmoid(x: Tensor) -> Tensor:
    """1 / (1 + exp(-x)): from writing nothing to replacing all that a key of length 1 retrieves.

    Source: Schlag et al. 2021, Eq. 21.
    """
    return x.sigmoid()
