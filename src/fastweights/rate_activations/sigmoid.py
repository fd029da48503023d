"""Rates between 0 and 1."""

from torch import Tensor


def sigmoid(x: Tensor) -> Tensor:
    """Rates between 0 and 1.

        beta = 1 / (1 + exp(-x))

    0 writes nothing. 1 replaces all that a key of length 1 retrieves.

    Source: Schlag et al. 2021 (arXiv:2102.11174), Eq. 21.

    Args:
        x: Outputs of the slow network, of any shape.

    Returns:
        The rates, of the same shape.
    """
    return x.sigmoid()
