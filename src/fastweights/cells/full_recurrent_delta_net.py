"""The Recurrent DeltaNet of the printed equations: every memory receives the outputs of all memories."""

from typing import Annotated, NamedTuple

import torch
from torch import Tensor

from fastweights.rules.delta import delta
from fastweights.signature import TensorSpec, computes_rates


class FullRecurrentDeltaNetState(NamedTuple):
    """M memories, and their outputs."""

    W: Annotated[Tensor, TensorSpec("M V K", "memory")]
    y: Annotated[Tensor, TensorSpec("M V", "memory")]


class FullRecurrentDeltaNetInputs(NamedTuple):
    q: Annotated[Tensor, TensorSpec("M K", "value")]
    k: Annotated[Tensor, TensorSpec("M K", "value")]
    v: Annotated[Tensor, TensorSpec("M V", "value")]
    beta: Annotated[Tensor, TensorSpec("M", "value")]


class FullRecurrentDeltaNetParams(NamedTuple):
    """Weights from all M V outputs to all keys, values and rates."""

    R_q: Annotated[Tensor, TensorSpec("M*K M*V", "weight")]
    R_k: Annotated[Tensor, TensorSpec("M*K M*V", "weight")]
    R_v: Annotated[Tensor, TensorSpec("M*V M*V", "weight")]
    R_beta: Annotated[Tensor, TensorSpec("M M*V", "weight")]


def _rates(
    state: FullRecurrentDeltaNetState, x: FullRecurrentDeltaNetInputs, params: FullRecurrentDeltaNetParams
) -> dict[str, Tensor]:
    return {"beta": (x.beta + params.R_beta @ state.y.flatten().tanh()).sigmoid()}


@computes_rates(_rates)
def full_recurrent_delta_net(
    state: FullRecurrentDeltaNetState, x: FullRecurrentDeltaNetInputs, params: FullRecurrentDeltaNetParams
) -> tuple[FullRecurrentDeltaNetState, Annotated[Tensor, TensorSpec("M V", "value")]]:
    """Recurrent DeltaNet with recurrence across heads.

        W_m <- W_m + beta_m (v_m - W_m k_m) k_m^T
        y_m = W_m q_m

    R tanh([y_1, ..., y_M]) of the previous step is added to q, k, v and beta of every head m. The scan treats the M
    memories as one head. With M = 1 it is the Recurrent DeltaNet.

    Source: Irie et al. 2021 (arXiv:2106.06295), Eqs. 15-18, where every R maps the whole output. In the authors' code
    the recurrence stays within a head.

    Can: overwrite, recur.
    """
    r = state.y.flatten().tanh()
    q = (x.q + (params.R_q @ r).view_as(x.q)).softmax(-1)
    k = (x.k + (params.R_k @ r).view_as(x.k)).softmax(-1)
    v = x.v + (params.R_v @ r).view_as(x.v)
    beta = (x.beta + params.R_beta @ r).sigmoid()
    W = torch.vmap(delta)(state.W, k, v, beta)
    y = (W @ q.unsqueeze(-1)).squeeze(-1)
    return FullRecurrentDeltaNetState(W, y), y
