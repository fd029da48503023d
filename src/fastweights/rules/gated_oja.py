"""The gated Oja rule."""

import torch

from fastweights.signature import Key, Matrix, Rate, Value, ValueDecay, key_features


@key_features("identity", "l2")
def gated_oja(W: Matrix, k: Key, v: Value, decay: ValueDecay, beta: Rate) -> Matrix:
    """Gated Oja rule: the delta rule with keys and values swapped.

        M = diag(decay) W
        W <- M + beta v (k - M^T v)^T

    Associations of v that the memory already holds are not written again. Here v is divided by max(1, |v|), since W is
    bounded only for values of at most length 1.

    Source: Oja 1982 (doi:10.1007/BF00275687); the gated form is that of flash-linear-attention,
    `ops/gated_oja_rule/fused_recurrent.py`, where the caller bounds v.

    Can: fade.
    """
    faded = W * decay.unsqueeze(-1)
    v = v * torch.clamp(v @ v, min=1.0).rsqrt()
    return faded + beta * torch.outer(v, k - v @ faded)
