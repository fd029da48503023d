"""The delta rule."""

import torch

from fastweights.signature import Key, Matrix, Rate, Value


def delta(W: Matrix, k: Key, v: Value, beta: Rate) -> Matrix:
    """Delta rule: replaces the value that is stored under a key.

        W <- W + beta (v - W k) k^T

    Source: Schlag et al. 2021 (arXiv:2102.11174), Eq. 24; Widrow and Hoff 1960 (doi:10.21236/AD0241531).

    Can: overwrite.
    """
    return W + beta * torch.outer(v - W @ k, k)
