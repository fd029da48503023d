"""Keys as the papers' delta models make them, for cells that make their own."""

from torch import Tensor

from fastweights.feature_maps.elu import positive
from fastweights.normalisers.sum import sum as over_sum


def positive_keys(x: Tensor) -> Tensor:
    """(elu(x) + 1) / (sum(elu(x) + 1) + 1e-5) over the last axis, with the constant of the authors' code."""
    return over_sum(positive(x), digits=5)
