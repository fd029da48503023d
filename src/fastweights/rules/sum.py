"""The sum rule."""

import torch

from fastweights.signature import Key, Matrix, Value


def sum(W: Matrix, k: Key, v: Value) -> Matrix:
    """W <- W + v k^T: adds every association and forgets none.

    Source: Katharopoulos et al. 2020; Schlag et al. 2021, Eq. 17.

    Can: accumulate.
    """
    return W + torch.outer(v, k)
