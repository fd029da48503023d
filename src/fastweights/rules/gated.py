"""The gated rule."""

import torch

from fastweights.signature import Key, Matrix, Rate, Value


def gated(W: Matrix, k: Key, v: Value, beta: Rate) -> Matrix:
    """Gated sum: fades all associations by as much as it writes.

        W <- (1 - beta) W + beta v k^T

    Source: Peng et al. 2021 (arXiv:2103.02143); Schlag et al. 2021 (arXiv:2102.11174), appendix B, Eq. 52.

    Can: fade.
    """
    return (1 - beta) * W + beta * torch.outer(v, k)
