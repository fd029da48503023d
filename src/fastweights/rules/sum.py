"""The sum rule."""

import torch

from fastweights.signature import Key, Matrix, Value


def sum(W: Matrix, k: Key, v: Value) -> Matrix:
    """Sum rule: adds every association and never forgets.

        W <- W + v k^T

    Source: Katharopoulos et al. 2020 (arXiv:2006.16236); Schlag et al. 2021 (arXiv:2102.11174), Eq. 17.

    Can: accumulate.
    """
    return W + torch.outer(v, k)
