"""The gated rule."""

import torch

from fastweights.signature import Key, Matrix, Rate, Value


def gated(W: Matrix, k: Key, v: Value, beta: Rate) -> Matrix:
    """W <- (1 - beta) W + beta v k^T: makes room for v by fading every association alike.

    Source: Peng et al. 2021; Schlag et al. 2021, appendix B, Eq. 52.

    Can: fade.
    """
    return (1 - beta) * W + beta * torch.outer(v, k)
