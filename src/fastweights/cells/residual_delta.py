"""Residual delta net: a second memory for what the first one gets wrong."""

from typing import NamedTuple

from fastweights.rules.gated_delta import gated_delta
from fastweights.signature import Decay, Key, Matrix, Rate, Value, key_features


class ResidualDeltaState(NamedTuple):
    W: Matrix
    R: Matrix


class ResidualDeltaInputs(NamedTuple):
    q: Key
    k: Key
    v: Value
    decay: Decay
    beta: Rate
    correction: Rate


@key_features("identity", "l2")
def residual_delta(state: ResidualDeltaState, x: ResidualDeltaInputs) -> tuple[ResidualDeltaState, Value]:
    """Residual Delta Net: a second memory learns the errors of the first.

        r = clip(v - W k)
        W <- decay W + beta (v - decay W k) k^T
        R <- decay R + c (r - decay R k) k^T
        y = decay W' q + c R q

    W' is W before the write. R learns the errors of W with its own rate c, the input
    `correction`, and the output adds the two. Errors are clipped to [-1, 1].

    Source: Lai et al. 2025 (Enhancing Linear Attention with Residual Learning, arXiv:2509.25223), the Residual Delta
    Net. It follows a transcript of the equations.

    Can: overwrite, fade.
    """
    error = (x.v - state.W @ x.k).clamp(-1, 1)
    W = gated_delta(state.W, x.k, x.v, x.decay, x.beta)
    R = gated_delta(state.R, x.k, error, x.decay, x.correction)
    return ResidualDeltaState(W, R), x.decay * (state.W @ x.q) + x.correction * (R @ x.q)
