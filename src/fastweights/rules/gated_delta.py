"""The gated delta rule."""

import torch

from fastweights.signature import Decay, Key, Matrix, Rate, Value


def gated_delta(W: Matrix, k: Key, v: Value, decay: Decay, beta: Rate) -> Matrix:
    """Gated delta rule: fades the memory, then overwrites one key.

        W <- decay W + beta (v - decay W k) k^T

    Source: Yang et al. 2024 (Gated DeltaNet, arXiv:2412.06464), Eq. 10.

    Can: overwrite, fade.
    """
    faded = decay * W
    return faded + beta * torch.outer(v - faded @ k, k)
