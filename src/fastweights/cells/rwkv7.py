"""The memory of RWKV-7."""

from typing import NamedTuple

import torch

from fastweights.signature import Key, KeyDecay, KeyRate, Matrix, RawKey, Value, key_features


class RWKV7State(NamedTuple):
    W: Matrix


class RWKV7Inputs(NamedTuple):
    q: RawKey
    k: RawKey
    v: Value
    removed: Key
    decay: KeyDecay
    rate: KeyRate


@key_features("identity", "l2")
def rwkv7(state: RWKV7State, x: RWKV7Inputs) -> tuple[RWKV7State, Value]:
    """RWKV-7: delta rule with a separate key for removal.

        W <- W diag(decay) - (W r) (rate * r)^T + v k^T
        y = W q

    The value to remove is read before W decays. The key r, the input `removed`, has length 1. The key k does not.

    Source: Peng et al. 2025 (RWKV-7, arXiv:2503.14456), in the form of flash-linear-attention,
    `ops/rwkv7/fused_recurrent.py`.

    Can: overwrite, fade.
    """
    W = state.W * x.decay - torch.outer(state.W @ x.removed, x.rate * x.removed) + torch.outer(x.v, x.k)
    return RWKV7State(W), W @ x.q
