"""Comba: a gated delta rule with a learned strength of the feedback and a corrected query."""

from typing import Annotated, NamedTuple

import torch
from torch import Tensor

from fastweights.signature import Decay, Key, Matrix, Rate, TensorSpec, Value, key_features


class CombaState(NamedTuple):
    W: Matrix


class CombaInputs(NamedTuple):
    q: Key
    k: Key
    v: Value
    decay: Decay
    beta: Rate


class CombaParams(NamedTuple):
    feedback: Annotated[Tensor, TensorSpec("", "bias")]
    correction: Annotated[Tensor, TensorSpec("", "bias")]


@key_features("identity", "l2")
def comba(state: CombaState, x: CombaInputs, params: CombaParams) -> tuple[CombaState, Value]:
    """Comba: gated delta rule with weaker feedback.

        p = sigmoid(feedback) k
        W <- decay W + beta (v - W p) k^T
        y = W (q - correction k)

    The state is read with p instead of k, and before it decays. The key corrects the query.

    Source: Hu et al. 2025 (Comba, arXiv:2506.02475), in the form of flash-linear-attention,
    `ops/comba/fused_recurrent.py`.

    Can: overwrite, fade.
    """
    error = x.v - params.feedback.sigmoid() * (state.W @ x.k)
    W = x.decay * state.W + x.beta * torch.outer(error, x.k)
    return CombaState(W), W @ (x.q - params.correction * x.k)
