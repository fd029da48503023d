"""The decayed Hebbian rule."""

import torch

from fastweights.signature import Decay, Key, Matrix, Rate, Value


def hebbian(W: Matrix, k: Key, v: Value, decay: Decay, eta: Rate) -> Matrix:
    """Hebbian rule with decay: adds associations; all of them fade.

        W <- decay W + eta v k^T

    Source: Ba et al. 2016 (arXiv:1610.06258), Eq. 1, where k = v = h, decay = 0.95 and eta = 0.5.

    Can: fade.
    """
    return decay * W + eta * torch.outer(v, k)
