"""Recursive least squares: the Kalman filter of a linear memory."""

from typing import Annotated, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import softplus

from fastweights.signature import Decay, Key, Matrix, Rate, TensorSpec, Value, key_features


class RecursiveLeastSquaresState(NamedTuple):
    """The mean W, and S = I - P for the covariance P of every row of W, so that a state of zeros is the prior."""

    W: Matrix
    S: Annotated[Tensor, TensorSpec("K K", "contraction")]


class RecursiveLeastSquaresInputs(NamedTuple):
    q: Key
    k: Key
    v: Value
    decay: Decay
    beta: Rate


class RecursiveLeastSquaresParams(NamedTuple):
    ridge: Annotated[Tensor, TensorSpec("", "bias")]


@key_features("identity", "l2")
def recursive_least_squares(
    state: RecursiveLeastSquaresState, x: RecursiveLeastSquaresInputs, params: RecursiveLeastSquaresParams
) -> tuple[RecursiveLeastSquaresState, Value]:
    """Recursive least squares: exact ridge regression over time.

        g = b P k / (1 + b k . P k)
        W <- W + (v - W k) g^T
        P <- P - P k g^T
        y = W q

    The precision of a value is b = beta / ridge with ridge = 1/4 + softplus(.). Before a write the memory fades to its
    prior: W to decay W, and P to decay^2 P + (1 - decay^2) I. With a decay of 1 the new W minimises sum_s beta_s |v_s -
    W k_s|^2 + ridge |W|^2. `mesa` solves the same problem by iterations at every step.

    Source: Plackett 1950 (Some Theorems in Least Squares); Kalman 1960, for weights W that follow W <- decay W + noise
    with variance 1. As a memory: Pandey and Singh 2026 (Variational Linear Attention, arXiv:2605.11196) and Peng et al.
    2025 (Gated KalmaNet, arXiv:2511.21016).

    Can: accumulate, overwrite, fade.
    """
    faded, S = x.decay * state.W, x.decay.square() * state.S
    Pk = x.k - S @ x.k
    precision = x.beta / (0.25 + softplus(params.ridge))
    gain = precision / (1 + precision * (x.k @ Pk)) * Pk
    W = faded + torch.outer(x.v - faded @ x.k, gain)
    return RecursiveLeastSquaresState(W, S + torch.outer(Pk, gain)), W @ x.q
