"""Normalisation by the sum."""

from torch import Tensor


def sum(x: Tensor, digits: int | None = None) -> Tensor:
    """x / (sum x + eps), for positive features: without it models with the delta rule diverge.

    "sum" has no eps, "sum-5" one of 10^-5. A key without any positive feature (DPFP can have one) stays 0.

    Source: Schlag et al. 2021, Eq. 29; eps as in the code of the papers: none in language models and algorithmic tasks,
    1e-5 in reinforcement learning, 1e-6 for the queries of retrieval tasks.
    """
    total = x.sum(dim=-1, keepdim=True)
    return x / (total + (total == 0) if digits is None else total + 10.0**-digits)
