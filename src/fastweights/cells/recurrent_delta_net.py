"""The Recurrent DeltaNet: a slow net that sees what the memory read."""

from typing import Annotated, NamedTuple

from torch import Tensor

from fastweights.rules.delta import delta
from fastweights.signature import Matrix, Output, RawKey, RawRate, Slot, Value, invents


class RecurrentDeltaNetState(NamedTuple):
    W: Matrix
    y: Output


class RecurrentDeltaNetInputs(NamedTuple):
    q: RawKey
    k: RawKey
    v: Value
    beta: RawRate


class RecurrentDeltaNetParams(NamedTuple):
    R_q: Annotated[Tensor, Slot("K V", "weight")]
    R_k: Annotated[Tensor, Slot("K V", "weight")]
    R_v: Annotated[Tensor, Slot("V V", "weight")]
    r_beta: Annotated[Tensor, Slot("V", "weight")]


def _rates(
    state: RecurrentDeltaNetState, x: RecurrentDeltaNetInputs, params: RecurrentDeltaNetParams
) -> dict[str, Tensor]:
    return {"beta": (x.beta + params.r_beta @ state.y.tanh()).sigmoid()}


@invents(_rates)
def recurrent_delta_net(
    state: RecurrentDeltaNetState, x: RecurrentDeltaNetInputs, params: RecurrentDeltaNetParams
) -> tuple[RecurrentDeltaNetState, Value]:
    """W <- W + beta (v - W k) k^T, y = W q, where q, k, v, beta each get R tanh(y) before they are squashed.

    Keys and queries by softmax, the rate by sigmoid. The recurrence stays within a head, as in the authors' code; with
    slow weights across heads, as their equations have it, it is the full Recurrent DeltaNet.

    Source: Irie et al. 2021, Eqs. 15-18.

    Can: overwrite, recur.
    """
    r = state.y.tanh()
    q = (x.q + params.R_q @ r).softmax(-1)
    k = (x.k + params.R_k @ r).softmax(-1)
    beta = (x.beta + params.r_beta @ r).sigmoid()
    W = delta(state.W, k, x.v + params.R_v @ r, beta)
    y = W @ q
    return RecurrentDeltaNetState(W, y), y
