"""The mLSTM: an LSTM whose cell is a matrix."""

from typing import Annotated, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from fastweights.signature import Accumulator, Key, Matrix, RawRate, TensorSpec, Value, keyed_by


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


@keyed_by("identity", "none")
def mlstm(state: MLSTMState, x: MLSTMInputs, eps: float = 0.0) -> tuple[MLSTMState, Value]:
    """W <- f W + i v k^T, z <- f z + i k, y = W q / max(|z . q|, 1), f = sigmoid(forget), i = exp(write).

    W and z are stored times e^-m, m <- max(log f + m, write), which changes no output. The paper divides k by sqrt(K).
    A slow network can learn that factor. The authors' code adds `eps` to the stored denominator, the one times e^-m.

    Source: Beck et al. 2024 (xLSTM), the mLSTM with its stabiliser.

    Can: fade.
    """
    log_forget = logsigmoid(x.forget)
    m = torch.maximum(log_forget + state.m, x.write)
    forget, write = (log_forget + state.m - m).exp(), (x.write - m).exp()
    W = forget * state.W + write * torch.outer(x.v, x.k)
    z = forget * state.z + write * x.k
    return MLSTMState(W, z, m), W @ x.q / (torch.maximum((z @ x.q).abs(), (-m).exp()) + eps)
