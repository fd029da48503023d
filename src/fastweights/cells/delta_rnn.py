"""The Delta RNN: a fast network that is a recurrent one."""

from typing import NamedTuple

from fastweights.rules.delta import delta
from fastweights.signature import Key, Matrix, Output, Rate, RecurrentMatrix, Value


class DeltaRNNState(NamedTuple):
    W: Matrix
    R: RecurrentMatrix
    y: Output


class DeltaRNNInputs(NamedTuple):
    q: Key
    k: Key
    v: Value
    beta: Rate
    recurrent_k: Value
    recurrent_v: Value
    recurrent_beta: Rate


def delta_rnn(state: DeltaRNNState, x: DeltaRNNInputs) -> tuple[DeltaRNNState, Value]:
    """y <- W q + R softmax(y): W and R are programmed by the delta rule, R with softmax keys, and used after the write.

    At the first step y = 0, so that the recurrent query is uniform, 1 / V. This is version 2 of the authors' code.

    Source: Irie et al. 2021, Eq. 12.

    Can: overwrite, recur.
    """
    W = delta(state.W, x.k, x.v, x.beta)
    R = delta(state.R, x.recurrent_k.softmax(-1), x.recurrent_v, x.recurrent_beta)
    y = W @ x.q + R @ state.y.softmax(-1)
    return DeltaRNNState(W, R, y), y
