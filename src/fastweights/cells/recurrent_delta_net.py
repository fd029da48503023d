"""The Recurrent DeltaNet: a slow network that receives the output of the memory."""

from typing import Annotated, NamedTuple

from torch import Tensor

from fastweights.rules.delta import delta
from fastweights.signature import Matrix, Output, RawKey, RawRate, TensorSpec, Value, computes_rates


class RecurrentDeltaNetState(NamedTuple):
    W: Matrix
    y: Output


class RecurrentDeltaNetInputs(NamedTuple):
    q: RawKey
    k: RawKey
    v: Value
    beta: RawRate


class RecurrentDeltaNetParams(NamedTuple):
    R_q: Annotated[Tensor, TensorSpec("K V", "weight")]
    R_k: Annotated[Tensor, TensorSpec("K V", "weight")]
    R_v: Annotated[Tensor, TensorSpec("V V", "weight")]
    r_beta: Annotated[Tensor, TensorSpec("V", "weight")]


def _rates(
    state: RecurrentDeltaNetState, x: RecurrentDeltaNetInputs, params: RecurrentDeltaNetParams
) -> dict[str, Tensor]:
    return {"beta": (x.beta + params.r_beta @ state.y.tanh()).sigmoid()}


@computes_rates(_rates)
def recurrent_delta_net(
    state: RecurrentDeltaNetState, x: RecurrentDeltaNetInputs, params: RecurrentDeltaNetParams
) -> tuple[RecurrentDeltaNetState, Value]:
    """Recurrent DeltaNet: the last output changes keys and values.

        [q, k, v, beta] = x + R tanh(y)
        W <- W + beta (v - W k) k^T
        y <- W q

    Keys and queries are softmax, and the rate is a sigmoid. The recurrence stays within a head, as in the authors'
    code. For slow weights across heads, as in the paper's equations, use `full-recurrent-delta-net`.

    Source: Irie et al. 2021 (arXiv:2106.06295), Eqs. 15-18.

    Can: overwrite, recur.
    """
    r = state.y.tanh()
    q = (x.q + params.R_q @ r).softmax(-1)
    k = (x.k + params.R_k @ r).softmax(-1)
    beta = (x.beta + params.r_beta @ r).sigmoid()
    W = delta(state.W, k, x.v + params.R_v @ r, beta)
    y = W @ q
    return RecurrentDeltaNetState(W, y), y
