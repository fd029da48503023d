"""The self-referential weight matrix with one rate for all of it."""

from typing import Annotated, NamedTuple

from torch import Tensor

from fastweights.cells._self_reference import modify
from fastweights.signature import Key, TensorSpec, Value, computes_rates


class OneRateSRWMState(NamedTuple):
    """Shift of each matrix from its learned start."""

    W_y: Annotated[Tensor, TensorSpec("V K", "memory")]
    W_q: Annotated[Tensor, TensorSpec("K K", "memory")]
    W_k: Annotated[Tensor, TensorSpec("K K", "memory")]
    W_beta: Annotated[Tensor, TensorSpec("1 K", "memory")]


class OneRateSRWMInputs(NamedTuple):
    x: Key


class OneRateSRWMParams(NamedTuple):
    """Learned starts of the matrices."""

    W_y: Annotated[Tensor, TensorSpec("V K", "weight")]
    W_q: Annotated[Tensor, TensorSpec("K K", "weight")]
    W_k: Annotated[Tensor, TensorSpec("K K", "weight")]
    W_beta: Annotated[Tensor, TensorSpec("1 K", "weight")]


def _rates(state: OneRateSRWMState, x: OneRateSRWMInputs, params: OneRateSRWMParams) -> dict[str, Tensor]:
    return {"beta": ((params.W_beta + state.W_beta) @ x.x).sigmoid()}


@computes_rates(_rates)
def one_rate_srwm(
    state: OneRateSRWMState, x: OneRateSRWMInputs, params: OneRateSRWMParams
) -> tuple[OneRateSRWMState, Value]:
    """Self-referential weight matrix with one rate for all parts.

        [y, q, k, beta] = W x
        W <- W + beta (W q - W k) k^T

    W = [W_y, W_q, W_k, w_beta]. Except for the rate it equals the self-referential weight matrix with four rates,
    `srwm`.

    Source: Irie et al. 2022 (arXiv:2202.05780), Eqs. 5-8.

    Can: overwrite, recur, modify itself.
    """
    matrices = [start + shift for start, shift in zip(params, state, strict=True)]
    W_y, W_q, W_k, W_beta = matrices
    q, k = (W_q @ x.x).softmax(-1), (W_k @ x.x).softmax(-1)
    rates = (W_beta @ x.x).sigmoid().expand(4).unbind()
    return OneRateSRWMState(*modify(state, matrices, q, k, rates)), W_y @ x.x
