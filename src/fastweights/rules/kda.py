"""The rule of Kimi delta attention."""

import torch

from fastweights.signature import Key, KeyDecay, Matrix, Rate, Value, key_features


@key_features("identity", "l2")
def kda(W: Matrix, k: Key, v: Value, decay: KeyDecay, beta: Rate) -> Matrix:
    """Kimi Delta Attention: gated delta rule, one decay per feature.

        M = W diag(decay)
        W <- M + beta (v - M k) k^T

    Source: Kimi Team 2025 (Kimi Linear, arXiv:2510.26692), in the form of flash-linear-attention, `ops/kda/naive.py`.

    Can: overwrite, fade.
    """
    faded = W * decay
    return faded + beta * torch.outer(v - faded @ k, k)
