"""Keys of the papers' delta-rule models, for cells that compute their keys inside the step."""

from torch import Tensor

from fastweights.feature_maps.elu import positive
from fastweights.normalisers.sum import sum as over_sum


def positive_keys(x: Tensor) -> Tensor:
    """(elu(x) + 1) / (sum(elu(x) + 1) + 1e-5) over the last axis, with the constant of the authors' code."""
    return over_sum(positive(x), digits=5)
