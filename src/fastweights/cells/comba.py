"""Comba: a gated delta rule with a learned strength of the feedback and a corrected query."""

from typing import Annotated, NamedTuple

import torch
from torch import Tensor

from fastweights.signature import Decay, Key, Matrix, Rate, TensorSpec, Value, keyed_by


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


@keyed_by("identity", "l2")
def comba(state: CombaState, x: CombaInputs, params: CombaParams) -> tuple[CombaState, Value]:
    """W <- decay W + beta (v - W p) k^T, p = sigmoid(feedback) k, y = W (q - correction k).

    The state is fed back less than the delta rule does, and before it fades; the query is corrected by the key:
    closed-loop control of the memory.

    Source: Hu et al. 2025 (Comba), as read in flash-linear-attention, `ops/comba/fused_recurrent.py`.

    Can: overwrite, fade.
    """
    error = x.v - params.feedback.sigmoid() * (state.W @ x.k)
    W = x.decay * state.W + x.beta * torch.outer(error, x.k)
    return CombaState(W), W @ (x.q - params.correction * x.k)
