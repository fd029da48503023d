"""The M2RNN: a recurrent network whose state is a matrix."""

from typing import Annotated, NamedTuple

import torch
from torch import Tensor

from fastweights.signature import Decay, Key, Matrix, TensorSpec, Value, key_features


class M2RNNState(NamedTuple):
    W: Matrix


class M2RNNInputs(NamedTuple):
    q: Key
    k: Key
    v: Value
    decay: Decay


class M2RNNParams(NamedTuple):
    R: Annotated[Tensor, TensorSpec("V V", "weight")]


@key_features("identity", "none")
def m2rnn(state: M2RNNState, x: M2RNNInputs, params: M2RNNParams) -> tuple[M2RNNState, Value]:
    """M2RNN: a nonlinear RNN with a matrix as its state.

        W <- decay W + (1 - decay) tanh(R W + v k^T)
        y = W q

    Source: Mishra et al. 2026 (M2RNN, arXiv:2603.14360), in the form of the authors' code, `xma/layers/m2rnn/op.py`.

    Can: overwrite, fade, recur.
    """
    W = x.decay * state.W + (1 - x.decay) * torch.tanh(params.R @ state.W + torch.outer(x.v, x.k))
    return M2RNNState(W), W @ x.q
