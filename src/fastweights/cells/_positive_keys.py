"""Keys as the papers' delta models make them, for cells that make their own."""

from torch import Tensor

from fastweights.feature_maps.elu import positive
from fastweights.normalisers.sum import sum as over_sum


def positive_keys(x: Tensor) -> Tensor:
    """(elu(x) + 1) / sum(elu(x) + 1) over the last axis."""
    return over_sum(positive(x))
