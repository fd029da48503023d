"""The rule of gated linear attention."""

import torch

from fastweights.signature import Key, KeyDecay, Matrix, Value, keyed_by


@keyed_by("identity", "none")
def gla(W: Matrix, k: Key, v: Value, decay: KeyDecay) -> Matrix:
    """W <- W diag(decay) + v k^T: every feature of the keys fades at its own pace.

    With one decay for all features it is the `hebbian` rule, of which RetNet (a fixed decay per head) and Mamba-2's SSD
    (decay = exp(A dt), eta = dt) are cases.

    Source: Yang et al. 2024 (Gated Linear Attention Transformers), as read in flash-linear-attention, `ops/gla`.

    Can: fade.
    """
    return W * decay + torch.outer(v, k)
