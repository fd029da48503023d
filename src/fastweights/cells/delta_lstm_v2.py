"""The Delta LSTM whose update is squashed."""

from fastweights.cells._delta_lstm import DeltaLSTMInputs, DeltaLSTMState, write
from fastweights.signature import Value


def delta_lstm_v2(state: DeltaLSTMState, x: DeltaLSTMInputs) -> tuple[DeltaLSTMState, Value]:
    """c <- i u + (1 - i) c, h <- o c; i, u, o = sigmoid(W q + R s), s = softmax(h): the update squashed like the gates.

    Version 2 of the authors' code.

    Source: Irie et al. 2021, appendix A.2 (ablation).

    Can: overwrite, recur.
    """
    W, R, z = write(state, x)
    i, u, o = (R @ state.h.softmax(-1) + z).unbind()
    i, u, o = i.sigmoid(), u.sigmoid(), o.sigmoid()
    c = i * u + (1 - i) * state.c
    h = o * c
    return DeltaLSTMState(W, R, h, c), h
