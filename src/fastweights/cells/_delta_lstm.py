"""State and writes that the versions of the Delta LSTM share: six fast matrices, two per gate."""

from typing import Annotated, NamedTuple

import torch
from torch import Tensor

from fastweights.rules.delta import delta
from fastweights.signature import Output, TensorSpec


class DeltaLSTMState(NamedTuple):
    """The matrices of the gates i, u, o in this order, the hidden state h and the cell state c."""

    W: Annotated[Tensor, TensorSpec("3 V K", "memory")]
    R: Annotated[Tensor, TensorSpec("3 V V", "memory")]
    h: Output
    c: Output


class DeltaLSTMInputs(NamedTuple):
    """Three of each input, for i, u and o."""

    q: Annotated[Tensor, TensorSpec("3 K", "key")]
    k: Annotated[Tensor, TensorSpec("3 K", "key")]
    v: Annotated[Tensor, TensorSpec("3 V", "value")]
    beta: Annotated[Tensor, TensorSpec("3", "rate")]
    recurrent_k: Annotated[Tensor, TensorSpec("3 V", "value")]
    recurrent_v: Annotated[Tensor, TensorSpec("3 V", "value")]
    recurrent_beta: Annotated[Tensor, TensorSpec("3", "rate")]


def write(state: DeltaLSTMState, x: DeltaLSTMInputs) -> tuple[Tensor, Tensor, Tensor]:
    """W and R after their delta rules, and z_g = W_g q_g, `[3, V]`."""
    each = torch.vmap(delta)
    W = each(state.W, x.k, x.v, x.beta)
    R = each(state.R, x.recurrent_k.softmax(-1), x.recurrent_v, x.recurrent_beta)
    return W, R, (W @ x.q.unsqueeze(-1)).squeeze(-1)
