"""SR-DeltaNet: a DeltaNet whose slow network is self-referential."""

from typing import Annotated, NamedTuple

from torch import Tensor

from fastweights.cells._self_reference import four_rates, modify
from fastweights.rules.delta import delta
from fastweights.signature import Key, Matrix, TensorSpec, Value, computes_rates


class SRDeltaNetState(NamedTuple):
    """Shift of each matrix of the slow network from its learned start, and the matrix W of the fast network."""

    P_q: Annotated[Tensor, TensorSpec("K K", "memory")]
    P_k: Annotated[Tensor, TensorSpec("K K", "memory")]
    P_v: Annotated[Tensor, TensorSpec("V K", "memory")]
    P_beta: Annotated[Tensor, TensorSpec("1 K", "memory")]
    W_q: Annotated[Tensor, TensorSpec("K K", "memory")]
    W_k: Annotated[Tensor, TensorSpec("K K", "memory")]
    W_beta: Annotated[Tensor, TensorSpec("4 K", "memory")]
    W: Matrix


class SRDeltaNetInputs(NamedTuple):
    x: Key


class SRDeltaNetParams(NamedTuple):
    """Learned starts of the matrices of the slow network."""

    P_q: Annotated[Tensor, TensorSpec("K K", "weight")]
    P_k: Annotated[Tensor, TensorSpec("K K", "weight")]
    P_v: Annotated[Tensor, TensorSpec("V K", "weight")]
    P_beta: Annotated[Tensor, TensorSpec("1 K", "weight")]
    W_q: Annotated[Tensor, TensorSpec("K K", "weight")]
    W_k: Annotated[Tensor, TensorSpec("K K", "weight")]
    W_beta: Annotated[Tensor, TensorSpec("4 K", "weight")]


def _rates(state: SRDeltaNetState, x: SRDeltaNetInputs, params: SRDeltaNetParams) -> dict[str, Tensor]:
    """The rates of the slow network, whose y part is P, and the rate beta of the delta rule on W."""
    return {**four_rates(state, x, params), "beta": ((params.P_beta + state.P_beta) @ x.x).sigmoid()}


@computes_rates(_rates)
def sr_delta_net(
    state: SRDeltaNetState, x: SRDeltaNetInputs, params: SRDeltaNetParams
) -> tuple[SRDeltaNetState, Value]:
    """SR-DeltaNet: a DeltaNet whose slow network modifies itself.

        [q, k, v, b] = P x
        W <- W + b (v - W k) k^T
        y = W q

    P is a self-referential weight matrix with one rate, and is written after it was read. Keys and queries are softmax,
    rates are sigmoids.

    Source: Irie et al. 2022 (arXiv:2202.05780), Sec. 3 and appendix (SR-DeltaNet).

    Can: overwrite, recur, modify itself.
    """
    matrices = [start + shift for start, shift in zip(params, state[:-1], strict=True)]
    P_q, P_k, P_v, P_beta, W_q, W_k, W_beta = (A @ x.x for A in matrices)
    rate, *rates = W_beta.sigmoid().unbind()
    shifts = modify(state[:-1], matrices, W_q.softmax(-1), W_k.softmax(-1), [rate, rate, rate, rate, *rates])
    W = delta(state.W, P_k.softmax(-1), P_v, P_beta.squeeze(-1).sigmoid())
    return SRDeltaNetState(*[*shifts, W]), W @ P_q.softmax(-1)
