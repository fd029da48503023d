"""The decayed Hebbian rule."""

import torch

from fastweights.signature import Decay, Key, Matrix, Rate, Value


def hebbian(W: Matrix, k: Key, v: Value, decay: Decay, eta: Rate) -> Matrix:
    """Hebbian rule with decay: adds associations; all of them fade.

        W <- decay W + eta v k^T

    The SSD of Mamba-2 (Dao and Gu 2024, arXiv:2405.21060) has decay = exp(A dt) and eta = dt. RetNet (Sun et al. 2023,
    arXiv:2307.08621) and lightning attention (Qin et al. 2024, arXiv:2401.04658) have a fixed decay per head and
    eta = 1.

    Source: Ba et al. 2016 (arXiv:1610.06258), Eq. 1, where k = v = h, decay = 0.95 and eta = 0.5.

    Can: fade.
    """
    return decay * W + eta * torch.outer(v, k)
