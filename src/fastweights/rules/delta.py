"""The delta rule."""

import torch

from fastweights.signature import Key, Matrix, Rate, Value


def delta(W: Matrix, k: Key, v: Value, beta: Rate) -> Matrix:
    """W <- W + beta (v - W k) k^T: replaces what k retrieves by v, as far as beta says.

    Source: Schlag et al. 2021, Eq. 24; Widrow and Hoff 1960.

    Can: overwrite.
    """
    return W + beta * torch.outer(v - W @ k, k)
