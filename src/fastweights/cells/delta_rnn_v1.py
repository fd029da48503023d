"""The Delta RNN whose output is squashed."""

from typing import NamedTuple

from fastweights.cells.delta_rnn import DeltaRNNState
from fastweights.rules.delta import delta
from fastweights.signature import Rate, RawKey, Value


class DeltaRNNV1Inputs(NamedTuple):
    q: RawKey
    k: RawKey
    v: Value
    beta: Rate
    recurrent_k: Value
    recurrent_v: Value
    recurrent_beta: Rate


def delta_rnn_v1(state: DeltaRNNState, x: DeltaRNNV1Inputs) -> tuple[DeltaRNNState, Value]:
    """y <- softmax(W softmax(q) + R y): the output is a softmax and is fed back unchanged; all keys by softmax.

    At the first step y = 0, so that R is not read. This is version 1 of the authors' code, their ablation.

    Source: Irie et al. 2021, Eq. 11 with fast weights; appendix A.2.

    Can: overwrite, recur.
    """
    W = delta(state.W, x.k.softmax(-1), x.v, x.beta)
    R = delta(state.R, x.recurrent_k.softmax(-1), x.recurrent_v, x.recurrent_beta)
    y = (W @ x.q.softmax(-1) + R @ state.y).softmax(-1)
    return DeltaRNNState(W, R, y), y
