"""Normalisation by the sum."""

from torch import Tensor


def sum(x: Tensor, digits: int | None = None) -> Tensor:
    """Divides a positive key or query by the sum of its components.

        y = x / (sum_i x_i + eps)

    Without it, models with the delta rule diverge. A key whose components are all 0, which DPFP can have, stays 0.

    Source: Schlag et al. 2021 (arXiv:2102.11174), Eq. 29; eps as in the code of the papers: none in language models and
    algorithmic tasks, 1e-5 in reinforcement learning, 1e-6 for the queries of retrieval tasks.

    Args:
        x: Keys or queries `[..., K]`, not negative.
        digits: Number n for eps = 10^-n. None: no eps. The names "sum" and "sum-5" mean None and 5.

    Returns:
        The normalised keys or queries, of the same shape.
    """
    total = x.sum(dim=-1, keepdim=True)
    return x / (total + (total == 0) if digits is None else total + 10.0**-digits)
