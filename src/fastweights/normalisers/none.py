"""The absence of normalisation."""

from torch import Tensor


def none(x: Tensor) -> Tensor:
    """Applies no normalisation.

    Args:
        x: Keys or queries `[..., K]`.

    Returns:
        x, unchanged.
    """
    return x
