"""The decayed Hebbian rule."""

import torch

from fastweights.signature import Decay, Key, Matrix, Rate, Value


def hebbian(W: Matrix, k: Key, v: Value, decay: Decay, eta: Rate) -> Matrix:
    """W <- decay W + eta v k^T: adds associations and lets all of them fade.

    The SSD of Mamba-2 (Dao and Gu 2024) has decay = exp(A dt) and eta = dt. RetNet (Sun et al. 2023) and lightning
    attention (Qin et al. 2024) have a fixed decay per head and eta = 1.

    Source: Ba et al. 2016, Eq. 1, where k = v = h, decay = 0.95 and eta = 0.5.

    Can: fade.
    """
    return decay * W + eta * torch.outer(v, k)
