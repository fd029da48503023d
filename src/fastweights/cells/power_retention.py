"""Power retention: linear attention whose keys are all products of two features."""

from typing import Annotated, NamedTuple

import torch
from torch import Tensor

from fastweights.signature import Decay, Key, TensorSpec, Value, key_features

EPS = 1e-5
"""Added to the denominator, since a query may be orthogonal to all keys."""


class PowerRetentionState(NamedTuple):
    W: Annotated[Tensor, TensorSpec("V K K", "memory")]
    z: Annotated[Tensor, TensorSpec("K K", "gram")]


class PowerRetentionInputs(NamedTuple):
    q: Key
    k: Key
    v: Value
    decay: Decay


@key_features("identity", "l2")
def power_retention(state: PowerRetentionState, x: PowerRetentionInputs) -> tuple[PowerRetentionState, Value]:
    """Power retention: attention with squared dot products.

        W <- decay W + v (k k^T)
        z <- decay z + k k^T
        y = W (q q^T) / z (q q^T)

    Squared products tell keys apart better than products do, and are positive for keys of any sign. The state is K
    times as large as that of linear attention. Of each pair of equal products k_i k_j both are stored, where the paper
    stores one.

    Source: Gelada et al. 2025 (Scaling Context Requires Rethinking Attention, arXiv:2507.04239), for the power 2;
    normalisation and gate in the form of the authors' code, `retention/_power_full`.

    Can: fade.
    """
    kk, qq = torch.outer(x.k, x.k), torch.outer(x.q, x.q)
    W = x.decay * state.W + x.v.unsqueeze(-1).unsqueeze(-1) * kk
    z = x.decay * state.z + kk
    return PowerRetentionState(W, z), W.flatten(1) @ qq.flatten() / (z.flatten() @ qq.flatten() + EPS)
