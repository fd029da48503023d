"""The rule of gated linear attention."""

import torch

from fastweights.signature import Key, KeyDecay, Matrix, Value, key_features


@key_features("identity", "none")
def gla(W: Matrix, k: Key, v: Value, decay: KeyDecay) -> Matrix:
    """Gated linear attention: every key feature fades at its own rate.

        W <- W diag(decay) + v k^T

    With one decay for all features it is the rule `hebbian`.

    Source: Yang et al. 2024 (Gated Linear Attention Transformers, arXiv:2312.06635), in the form of
    flash-linear-attention, `ops/gla`.

    Can: fade.
    """
    return W * decay + torch.outer(v, k)
