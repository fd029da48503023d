"""FAVOR+ as in the language models of Schlag et al."""

import torch
from torch import Tensor

from fastweights.feature_maps._random_features import RandomFeatures, orthonormal_columns


class RowFavor(RandomFeatures):
    """FAVOR+ as in the language models of Schlag et al. 2021.

        phi(x) = (exp(+-w . x - |x|^2 / 2) + 10^-4) / sqrt(2 m)

    The rows of the matrix of directions are orthogonal in groups of m, each as long as a Gaussian vector of m
    components; the directions themselves are not orthogonal. The constant ensures that no key has only zero features.

    Source: Schlag et al. 2021 (arXiv:2102.11174), Eqs. 31-32, as in the code of their language models.
    """

    least = 1e-4

    def draw(self, size: int, m: int) -> Tensor:
        """Draws directions with orthogonal rows."""
        return orthonormal_columns(m, size).mT * torch.randn(size, m).norm(dim=1, keepdim=True)
