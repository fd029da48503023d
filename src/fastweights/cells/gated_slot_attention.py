"""Gated slot attention: attention over a fixed number of slots."""

from typing import Annotated, NamedTuple

import torch
from torch import Tensor

from fastweights.signature import RawKey, TensorSpec, Value


class GatedSlotAttentionState(NamedTuple):
    keys: Annotated[Tensor, TensorSpec("8 K", "memory")]
    values: Annotated[Tensor, TensorSpec("8 V", "memory")]


class GatedSlotAttentionInputs(NamedTuple):
    q: RawKey
    k: RawKey
    v: Value
    decay: Annotated[Tensor, TensorSpec("8", "decay")]


def gated_slot_attention(
    state: GatedSlotAttentionState, x: GatedSlotAttentionInputs
) -> tuple[GatedSlotAttentionState, Value]:
    """Gated slot attention: softmax attention over fading slots.

        K_s <- a_s K_s + (1 - a_s) k
        V_s <- a_s V_s + (1 - a_s) v
        y = V^T softmax(K q)

    There are 8 slots s, each with its own decay a_s.

    Source: Zhang et al. 2024 (Gated Slot Attention, arXiv:2409.07146), in the form of flash-linear-attention,
    `ops/gsa/naive.py`.

    Can: overwrite, fade.
    """
    new = 1 - x.decay
    keys = state.keys * x.decay.unsqueeze(-1) + torch.outer(new, x.k)
    values = state.values * x.decay.unsqueeze(-1) + torch.outer(new, x.v)
    return GatedSlotAttentionState(keys, values), (keys @ x.q).softmax(-1) @ values
