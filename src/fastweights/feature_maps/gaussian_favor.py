"""FAVOR+ with independent Gaussian directions."""

import torch
from torch import Tensor

from fastweights.feature_maps._random_features import RandomFeatures


class GaussianFavor(RandomFeatures):
    """FAVOR+ with independent Gaussian directions.

        phi(x) = exp(+-w . x - |x|^2 / 2) / sqrt(2 m), w ~ N(0, I)

    The expectation of phi(q) . phi(k) is exp(q . k). The directions are not orthogonal, so that the estimate has a
    larger variance than that of `favor`.

    Source: Schlag et al. 2021 (arXiv:2102.11174), Eqs. 31-32 as printed; Choromanski et al. 2021 (arXiv:2009.14794),
    Lemma 1.
    """

    def draw(self, size: int, m: int) -> Tensor:
        """Draws independent Gaussian directions."""
        return torch.randn(size, m)
