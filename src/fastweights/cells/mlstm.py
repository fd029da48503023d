"""The mLSTM: an LSTM whose cell is a matrix."""

from typing import Annotated, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from fastweights.signature import Accumulator, Key, Matrix, RawRate, TensorSpec, Value, key_features


class MLSTMState(NamedTuple):
    """W and z are those of the equations times e^-m, since the exponential gates alone would overflow."""

    W: Matrix
    z: Accumulator
    m: Annotated[Tensor, TensorSpec("", "memory")]


class MLSTMInputs(NamedTuple):
    q: Key
    k: Key
    v: Value
    forget: RawRate
    write: RawRate


@key_features("identity", "none")
def mlstm(state: MLSTMState, x: MLSTMInputs, eps: float = 0.0) -> tuple[MLSTMState, Value]:
    """mLSTM of the xLSTM: gated linear attention, stabilised.

        f = sigmoid(forget), i = exp(write)
        W <- f W + i v k^T
        z <- f z + i k
        y = W q / max(|z . q|, 1)

    W and z are stored multiplied by e^-m with m <- max(log f + m, write), which does not change the output. The paper
    divides k by sqrt(K); the slow network can learn this factor.

    Source: Beck et al. 2024 (xLSTM, arXiv:2405.04517), the mLSTM with its stabiliser.

    Can: fade.

    Args:
        eps: Number that is added to the stored denominator, as in the authors' code.
    """
    log_forget = logsigmoid(x.forget)
    m = torch.maximum(log_forget + state.m, x.write)
    forget, write = (log_forget + state.m - m).exp(), (x.write - m).exp()
    W = forget * state.W + write * torch.outer(x.v, x.k)
    z = forget * state.z + write * x.k
    return MLSTMState(W, z, m), W @ x.q / (torch.maximum((z @ x.q).abs(), (-m).exp()) + eps)
