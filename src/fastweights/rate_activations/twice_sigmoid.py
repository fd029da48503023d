"""Rates between 0 and 2."""

from torch import Tensor


def twice_sigmoid(x: Tensor) -> Tensor:
    """Rates between 0 and 2.

        beta = 2 / (1 + exp(-x))

    Above 1 a write changes the sign of the value that the key retrieved, so that a memory can track a parity.

    Source: Grazzi et al. 2024 (Unlocking State-Tracking in Linear RNNs Through Negative Eigenvalues, arXiv:2411.12537),
    Sec. 4.

    Args:
        x: Outputs of the slow network, of any shape.

    Returns:
        The rates, of the same shape.
    """
    return 2 * x.sigmoid()
