"""FAVOR+ as in the language models of Schlag et al."""

import torch

from fastweights.feature_maps.favor import Favor, orthonormal_columns


class RowFavor(Favor):
    """phi(x) = (exp(+-w.x - |x|^2 / 2) + 1e-4) / sqrt(2 m): FAVOR+ with directions that are not orthogonal.

    Instead, the rows of the matrix of directions are, which one entry of x is multiplied with: in groups of m, each as
    long as a Gaussian vector of m entries. Thanks to the constant no key has only zero features.

    Source: Schlag et al. 2021, Eqs. 31-32, as in the code of their language models.
    """

    least = 1e-4

    @torch.no_grad()
    def redraw(self) -> None:
        """Draws new directions."""
        lengths = torch.randn_like(self.directions).norm(dim=1, keepdim=True)
        self.directions.copy_(orthonormal_columns(self.directions.mT).mT * lengths)
