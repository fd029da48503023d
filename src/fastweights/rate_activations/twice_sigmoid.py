"""Rates between 0 and 2."""

from torch import Tensor


def twice_sigmoid(x: Tensor) -> Tensor:
    """2 / (1 + exp(-x)): above 1 a write turns the sign of what the key retrieved, so that a memory can count and flip.

    Source: Grazzi et al. 2024 (Unlocking State-Tracking in Linear RNNs Through Negative Eigenvalues), Sec. 4.
    """
    return 2 * x.sigmoid()
