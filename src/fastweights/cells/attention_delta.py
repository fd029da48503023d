"""DeltaNet with attention normalisation."""

from typing import NamedTuple

import torch

from fastweights.cells.linear_attention import EPS, LinearAttentionState
from fastweights.rules.delta import delta
from fastweights.signature import Key, Rate, Value


class AttentionDeltaInputs(NamedTuple):
    q: Key
    k: Key
    v: Value
    beta: Rate


def attention_delta(state: LinearAttentionState, x: AttentionDeltaInputs) -> tuple[LinearAttentionState, Value]:
    """Delta rule with attention normalisation of writes and reads.

        W <- W + beta (v - W k / (z . k)) k^T
        z <- z + k
        y = W q / (z . q)

    If z . k = 0, as at the first step, nothing is stored under k, and the denominator is 1.

    Source: Schlag et al. 2021 (arXiv:2102.11174), Sec. 4.2 (attention normalisation, also of the old value), with the
    eps of the authors' code.

    Can: overwrite.
    """
    stored = state.z @ x.k
    stored = torch.where(stored == 0, 1.0, stored)
    # The form of the authors: it equals dividing W k, with their eps in one place.
    W = delta(state.W, x.k / (stored + EPS), x.v, x.beta * stored)
    z = state.z + x.k
    return LinearAttentionState(W, z), W @ x.q / (z @ x.q + EPS)
