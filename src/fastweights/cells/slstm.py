"""The sLSTM: an LSTM with exponential gates."""

from typing import Annotated, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from fastweights.signature import Output, TensorSpec, Value

Cell = Annotated[Tensor, TensorSpec("V", "memory")]
Recurrent = Annotated[Tensor, TensorSpec("V V", "weight")]


class SLSTMState(NamedTuple):
    """c and n are those of the equations times e^-m, since the exponential gates alone would overflow."""

    c: Cell
    n: Cell
    m: Cell
    y: Output


class SLSTMInputs(NamedTuple):
    new: Value
    write: Value
    forget: Value
    out: Value


class SLSTMParams(NamedTuple):
    """Recurrent weights of the gates, which multiply the last output."""

    new: Recurrent
    write: Recurrent
    forget: Recurrent
    out: Recurrent


def slstm(state: SLSTMState, x: SLSTMInputs, params: SLSTMParams) -> tuple[SLSTMState, Value]:
    """sLSTM of the xLSTM: an LSTM with exponential gating.

        f = sigmoid(forget), i = exp(write)
        c <- f * c + i * tanh(new)
        n <- f * n + i
        y <- sigmoid(out) * c / n

    R y is added to each of new, write, forget and out. c and n are stored multiplied by e^-m with m <- max(log f + m,
    write), which does not change the output.

    Source: Beck et al. 2024 (xLSTM, arXiv:2405.04517), the sLSTM with its stabiliser, sigmoid forget gates and one
    head.

    Can: overwrite, fade, recur.
    """
    new, write, forget, out = (input + R @ state.y for input, R in zip(x, params, strict=True))
    log_forget = logsigmoid(forget)
    m = torch.maximum(log_forget + state.m, write)
    decay, rate = (log_forget + state.m - m).exp(), (write - m).exp()
    c = decay * state.c + rate * new.tanh()
    n = decay * state.n + rate
    y = out.sigmoid() * c / n
    return SLSTMState(c, n, m, y), y
