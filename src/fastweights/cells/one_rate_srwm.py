"""The self-referential weight matrix with one rate for all of it."""

from typing import Annotated, NamedTuple

from torch import Tensor

from fastweights.cells._self_reference import modify
from fastweights.signature import Key, Slot, Value, invents


class OneRateSRWMState(NamedTuple):
    """How far each matrix has moved from where it started."""

    W_y: Annotated[Tensor, Slot("V K", "memory")]
    W_q: Annotated[Tensor, Slot("K K", "memory")]
    W_k: Annotated[Tensor, Slot("K K", "memory")]
    W_beta: Annotated[Tensor, Slot("1 K", "memory")]


class OneRateSRWMInputs(NamedTuple):
    x: Key


class OneRateSRWMParams(NamedTuple):
    """Where the matrices start, learned."""

    W_y: Annotated[Tensor, Slot("V K", "weight")]
    W_q: Annotated[Tensor, Slot("K K", "weight")]
    W_k: Annotated[Tensor, Slot("K K", "weight")]
    W_beta: Annotated[Tensor, Slot("1 K", "weight")]


def _rates(state: OneRateSRWMState, x: OneRateSRWMInputs, params: OneRateSRWMParams) -> dict[str, Tensor]:
    return {"beta": ((params.W_beta + state.W_beta) @ x.x).sigmoid()}


@invents(_rates)
def one_rate_srwm(
    state: OneRateSRWMState, x: OneRateSRWMInputs, params: OneRateSRWMParams
) -> tuple[OneRateSRWMState, Value]:
    """A <- A + beta (A q - A k) k^T for all A in W = [W_y, W_q, W_k, w_beta], [y, q, k, beta] = W x: with one rate.

    Otherwise as the self-referential weight matrix with four rates.

    Source: Irie et al. 2022, Eqs. 5-8 as they stand.

    Can: overwrite, recur, modify itself.
    """
    matrices = [start + shift for start, shift in zip(params, state, strict=True)]
    W_y, W_q, W_k, W_beta = matrices
    q, k = (W_q @ x.x).softmax(-1), (W_k @ x.x).softmax(-1)
    rates = (W_beta @ x.x).sigmoid().expand(4).unbind()
    return OneRateSRWMState(*modify(state, matrices, q, k, rates)), W_y @ x.x
