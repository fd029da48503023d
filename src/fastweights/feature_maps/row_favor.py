"""FAVOR+ as in the language models of Schlag et al."""

import torch
from torch import Tensor

from fastweights.feature_maps._random_features import RandomFeatures, orthonormal_columns


class RowFavor(RandomFeatures):
    """phi(x) = (exp(+-w.x - |x|^2 / 2) + 1e-4) / sqrt(2 m): FAVOR+ with directions that are not orthogonal.

    Instead the rows of the matrix of directions are orthogonal, in groups of m, each as long as a Gaussian vector of m
    entries. The constant ensures that no key has only zero features.

    Source: Schlag et al. 2021, Eqs. 31-32, as in the code of their language models.
    """

    least = 1e-4

    def draw(self, size: int, m: int) -> Tensor:
        """Draws directions `[size, m]` with orthogonal rows."""
        return orthonormal_columns(m, size).mT * torch.randn(size, m).norm(dim=1, keepdim=True)
