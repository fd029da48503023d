"""The gated Oja rule."""

import torch

from fastweights.signature import Key, Matrix, Rate, Value, ValueDecay, keyed_by


@keyed_by("identity", "l2")
def gated_oja(W: Matrix, k: Key, v: Value, decay: ValueDecay, beta: Rate) -> Matrix:
    """W <- M + beta v (k - M^T v)^T, M = diag(decay) W: what v already recalls of keys is not written again.

    Values change places with keys in the delta rule. As keys there, they must not be longer than 1 for W to stay
    bounded: here v is divided by max(1, |v|).

    Source: Oja 1982; gated as read in flash-linear-attention, `ops/gated_oja_rule/fused_recurrent.py`, which leaves the
    length of v to its caller.

    Can: fade.
    """
    faded = W * decay.unsqueeze(-1)
    v = v * torch.clamp(v @ v, min=1.0).rsqrt()
    return faded + beta * torch.outer(v, k - v @ faded)
