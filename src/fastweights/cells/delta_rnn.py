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
    """Delta RNN: an RNN whose weights the delta rule writes.

        y <- W q + R softmax(y)

    The delta rule writes W and R before they are used. The keys of R are softmax. At the first step y = 0, so that
    softmax(y) is uniform, 1 / V. This is version 2 of the authors' code.

    Source: Irie et al. 2021 (arXiv:2106.06295), Eq. 12.

    Can: overwrite, recur.
    """
    W = delta(state.W, x.k, x.v, x.beta)
    R = delta(state.R, x.recurrent_k.softmax(-1), x.recurrent_v, x.recurrent_beta)
    y = W @ x.q + R @ state.y.softmax(-1)
    return DeltaRNNState(W, R, y), y
