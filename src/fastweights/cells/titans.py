"""Titans with a linear memory: a delta rule with momentum and decay."""

from typing import NamedTuple

import torch

from fastweights.signature import Decay, Key, Matrix, Rate, Value, key_features


class TitansState(NamedTuple):
    W: Matrix
    surprise: Matrix


class TitansInputs(NamedTuple):
    q: Key
    k: Key
    v: Value
    decay: Decay
    momentum: Rate
    beta: Rate


@key_features("identity", "l2")
def titans(state: TitansState, x: TitansInputs) -> tuple[TitansState, Value]:
    """Titans: gradient descent with momentum on the recall error.

        S <- momentum S + beta (v - W k) k^T
        W <- decay W + S
        y = W q

    The loss is |W k - v|^2 / 2. The momentum S keeps writing after the token that caused it. `momentum` is a rate, near
    1/2 at the start of training: near 1, where decays start, the memory would diverge. Momentum DeltaNet is the same
    with a second rate for S and a separate key for the recalled value.

    Source: Behrouz et al. 2025 (Titans, arXiv:2501.00663), Eqs. 13-14, for a linear memory; Momentum DeltaNet in the
    form of flash-linear-attention, `ops/momentum_delta_rule/naive.py`.

    Can: overwrite, fade.
    """
    surprise = x.momentum * state.surprise + x.beta * torch.outer(x.v - state.W @ x.k, x.k)
    W = x.decay * state.W + surprise
    return TitansState(W, surprise), W @ x.q
