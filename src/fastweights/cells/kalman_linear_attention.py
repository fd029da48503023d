"""Kalman linear attention: a Kalman filter for every number of the memory."""

from typing import Annotated, NamedTuple

import torch
from torch import Tensor

from fastweights.signature import Key, Matrix, TensorSpec, Value, ValueRate, key_features

PerFeature = Annotated[Tensor, TensorSpec("K", "bias")]


class KalmanLinearAttentionState(NamedTuple):
    """The precision of every number minus that of the prior, 1, and the precision times the mean."""

    precision: Matrix
    information: Matrix


class KalmanLinearAttentionInputs(NamedTuple):
    q: Key
    k: Key
    v: Value
    certainty: ValueRate


class KalmanLinearAttentionParams(NamedTuple):
    decay: PerFeature
    noise: PerFeature


@key_features("identity", "none")
def kalman_linear_attention(
    state: KalmanLinearAttentionState, x: KalmanLinearAttentionInputs, params: KalmanLinearAttentionParams
) -> tuple[KalmanLinearAttentionState, Value]:
    """Kalman linear attention: Bayesian filtering of every weight.

        d = a^2 + p L
        L <- L / d + c (k * k)^T
        I <- a I / d + (c * v) k^T
        y = (I / L) q

    L is the precision of each number of the memory and I / L its mean; c is the `certainty` of the value. The numbers
    fade by a and gain noise of variance p, both slow weights: a = sigmoid(3 + decay), p = (1 - a^2) exp(noise), one per
    feature of the keys, where the paper has one per number. A certain number changes little, and an uncertain one takes
    the new value. All divisions are number by number.

    Source: Shaj et al. 2026 (Kalman Linear Attention, arXiv:2602.10743), in the form of the authors' code,
    `kla/ops/kla_ops.py`; the parametrisation of a and p is ours.

    Can: fade.
    """
    a = (3 + params.decay).sigmoid()
    spread = 1 - a.square()
    noise = spread * params.noise.exp()
    shrink = 1 / (a.square() + noise * (1 + state.precision))
    # L / d - 1, without the difference of two numbers near 1.
    left = ((1 - noise) * state.precision - spread * torch.expm1(params.noise)) * shrink
    precision = left + torch.outer(x.certainty, x.k.square())
    information = a * shrink * state.information + torch.outer(x.certainty * x.v, x.k)
    return KalmanLinearAttentionState(precision, information), (information / (1 + precision)) @ x.q
