"""The Delta Delta Net: a DeltaNet whose slow net is a DeltaNet."""

from typing import Annotated, NamedTuple

from torch import Tensor

from fastweights.cells._positive_keys import positive_keys
from fastweights.rules.delta import delta
from fastweights.signature import Key, Matrix, Rate, RawKey, RawRate, TensorSpec, Value, computes_rates


class DeltaDeltaNetState(NamedTuple):
    """The four matrices of the programmer, which read keys, values and rates, and the one that it programs."""

    W_q: Annotated[Tensor, TensorSpec("K K", "memory")]
    W_k: Annotated[Tensor, TensorSpec("K K", "memory")]
    W_v: Matrix
    W_beta: Annotated[Tensor, TensorSpec("1 K", "memory")]
    W: Matrix


class DeltaDeltaNetInputs(NamedTuple):
    """Query, key and rate of the programmer, and the values that it stores: q, k, v and beta of the last memory."""

    q: Key
    k: Key
    value_q: RawKey
    value_k: RawKey
    value_v: Value
    value_beta: RawRate
    beta: Rate


def _rates(state: DeltaDeltaNetState, x: DeltaDeltaNetInputs) -> dict[str, Tensor]:
    """The rate of W; that of the programmer is an input."""
    W_beta = delta(state.W_beta, x.k, x.value_beta.unsqueeze(-1), x.beta)
    return {"beta of W": (W_beta @ x.q).squeeze(-1).sigmoid()}


@computes_rates(_rates)
def delta_delta_net(state: DeltaDeltaNetState, x: DeltaDeltaNetInputs) -> tuple[DeltaDeltaNetState, Value]:
    """Delta Delta Net: a DeltaNet programmed by another DeltaNet.

        P <- P + beta (x_v - P x_k) x_k^T
        [q, k, v, b] = P x_q
        W <- W + b (v - W k) k^T
        y = W q

    Keys and queries read from P are elu + 1 divided by its sum. The rate b is a sigmoid.

    Source: Irie et al. 2021 (arXiv:2106.06295), Sec. 3.1 (Alternative Feedforward Fast Nets).

    Can: overwrite.
    """
    W_q = delta(state.W_q, x.k, x.value_q, x.beta)
    W_k = delta(state.W_k, x.k, x.value_k, x.beta)
    W_v = delta(state.W_v, x.k, x.value_v, x.beta)
    W_beta = delta(state.W_beta, x.k, x.value_beta.unsqueeze(-1), x.beta)
    beta = (W_beta @ x.q).squeeze(-1).sigmoid()
    W = delta(state.W, positive_keys(W_k @ x.q), W_v @ x.q, beta)
    return DeltaDeltaNetState(W_q, W_k, W_v, W_beta, W), W @ positive_keys(W_q @ x.q)
