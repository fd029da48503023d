"""The self-referential weight matrix: a network that programs itself."""

from typing import Annotated, NamedTuple

from torch import Tensor

from fastweights.cells._self_reference import four_rates, modify
from fastweights.signature import Key, TensorSpec, Value, computes_rates


class SRWMState(NamedTuple):
    """Shift of each matrix from its learned start."""

    W_y: Annotated[Tensor, TensorSpec("V K", "memory")]
    W_q: Annotated[Tensor, TensorSpec("K K", "memory")]
    W_k: Annotated[Tensor, TensorSpec("K K", "memory")]
    W_beta: Annotated[Tensor, TensorSpec("4 K", "memory")]


class SRWMInputs(NamedTuple):
    x: Key


class SRWMParams(NamedTuple):
    """Learned starts of the matrices."""

    W_y: Annotated[Tensor, TensorSpec("V K", "weight")]
    W_q: Annotated[Tensor, TensorSpec("K K", "weight")]
    W_k: Annotated[Tensor, TensorSpec("K K", "weight")]
    W_beta: Annotated[Tensor, TensorSpec("4 K", "weight")]


@computes_rates(four_rates)
def srwm(state: SRWMState, x: SRWMInputs, params: SRWMParams) -> tuple[SRWMState, Value]:
    """Self-referential weight matrix: modifies all of its weights.

        [y, q, k, beta] = W x
        A <- A + beta_A (A q - A k) k^T, A "in" [W_y, W_q, W_k, W_beta]

    q and k are softmax, and each part A of W has its own rate, a sigmoid. All reads precede the write. The state is the
    difference from the learned initial W, so that a training step also affects streams in progress.

    Source: Irie et al. 2022 (arXiv:2202.05780), Eqs. 5-8 with four rates (Sec. 3).

    Can: overwrite, recur, modify itself.
    """
    matrices = [start + shift for start, shift in zip(params, state, strict=True)]
    W_y, W_q, W_k, W_beta = matrices
    q, k = (W_q @ x.x).softmax(-1), (W_k @ x.x).softmax(-1)
    rates = (W_beta @ x.x).sigmoid().unbind()
    return SRWMState(*modify(state, matrices, q, k, rates)), W_y @ x.x
