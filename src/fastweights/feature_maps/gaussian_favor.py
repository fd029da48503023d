"""FAVOR+ with independent Gaussian directions."""

import torch
from torch import Tensor

from fastweights.feature_maps._random_features import RandomFeatures


class GaussianFavor(RandomFeatures):
    """phi(x) = exp(+-w.x - |x|^2 / 2) / sqrt(2 m) for m directions w ~ N(0, I): on average phi(q).phi(k) = exp(q.k).

    The directions are independent, not orthogonal, so that the estimate has a larger variance than that of `favor`.

    Source: Schlag et al. 2021, Eqs. 31-32 as printed; Choromanski et al. 2021, Lemma 1.
    """

    def draw(self, size: int, m: int) -> Tensor:
        """Directions `[size, m]`."""
        return torch.randn(size, m)
