"""The decayed Hebbian rule."""

import torch

from fastweights.signature import Decay, Key, Matrix, Rate, Value


def hebbian(W: Matrix, k: Key, v: Value, decay: Decay, eta: Rate) -> Matrix:
    """W <- decay W + eta v k^T: adds associations and lets all of them fade.

    Source: Ba et al. 2016, Eq. 1, where k = v = h, decay = 0.95 and eta = 0.5.

    Can: fade.
    """
    return decay * W + eta * torch.outer(v, k)
