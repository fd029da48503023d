"""FAVOR+: random features of the softmax kernel."""

import torch
from torch import Tensor

from fastweights.feature_maps._random_features import RandomFeatures, orthonormal_columns


class Favor(RandomFeatures):
    """phi(x) = exp(+-w.x - |x|^2 / 2) / sqrt(2 m) for m random directions w: on average phi(q).phi(k) = exp(q.k).

    The directions are orthogonal in groups of `size`, each as long as a Gaussian vector.

    Source: Choromanski et al. 2021, Lemma 1 (hyperbolic features) and Sec. 3.3; Schlag et al. 2021, Eqs. 31-32, as in
    the code of their retrieval tasks (which draws anew in evaluation, too).
    """

    def draw(self, size: int, m: int) -> Tensor:
        """Directions `[size, m]`."""
        return orthonormal_columns(size, m) * torch.randn(size, m).norm(dim=0)
