"""The rule of Kimi delta attention."""

import torch

from fastweights.signature import Key, KeyDecay, Matrix, Rate, Value, keyed_by


@keyed_by("identity", "l2")
def kda(W: Matrix, k: Key, v: Value, decay: KeyDecay, beta: Rate) -> Matrix:
    """W <- M + beta (v - M k) k^T, M = W diag(decay): the gated delta rule with a decay for each feature of the keys.

    Source: Kimi Team 2025 (Kimi Linear), as read in flash-linear-attention, `ops/kda/naive.py`.

    Can: overwrite, fade.
    """
    faded = W * decay
    return faded + beta * torch.outer(v - faded @ k, k)
