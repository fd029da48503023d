"""Yaad: a memory that is robust to outliers."""

from typing import NamedTuple

import torch

from fastweights.signature import Decay, Key, Matrix, Rate, Value, key_features


class YaadState(NamedTuple):
    W: Matrix


class YaadInputs(NamedTuple):
    q: Key
    k: Key
    v: Value
    decay: Decay
    threshold: Rate
    beta: Rate


@key_features("identity", "l2")
def yaad(state: YaadState, x: YaadInputs) -> tuple[YaadState, Value]:
    """Yaad: gradient descent on Huber's loss, robust to outliers.

        e = huber'(W k - v)
        W <- decay W - beta e k^T
        y = W q

    huber' limits the error to a threshold, which the slow network computes at every step. In the paper an error within
    the threshold counts twice. Here the rate absorbs this factor, so that the loss is smooth at the threshold.

    Source: Behrouz et al. 2025 (MIRAS, arXiv:2504.13173), Eq. 26.

    Can: overwrite, fade.
    """
    error = state.W @ x.k - x.v
    error = torch.minimum(torch.maximum(error, -x.threshold), x.threshold)
    W = x.decay * state.W - x.beta * torch.outer(error, x.k)
    return YaadState(W), W @ x.q
