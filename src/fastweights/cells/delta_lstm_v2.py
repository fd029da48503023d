"""The Delta LSTM whose update is squashed."""

from fastweights.cells._delta_lstm import DeltaLSTMInputs, DeltaLSTMState, write
from fastweights.signature import Value


def delta_lstm_v2(state: DeltaLSTMState, x: DeltaLSTMInputs) -> tuple[DeltaLSTMState, Value]:
    """Delta LSTM, version 2: the update u is a sigmoid like the gates.

        s = softmax(h)
        i, u, o = sigmoid(W q + R s)
        c <- i * u + (1 - i) * c
        h <- o * c

    Each of i, u and o has its own fast weights W and R. This is version 2 of the authors' code.

    Source: Irie et al. 2021 (arXiv:2106.06295), appendix A.2 (ablation).

    Can: overwrite, recur.
    """
    W, R, z = write(state, x)
    i, u, o = (R @ state.h.softmax(-1) + z).unbind()
    i, u, o = i.sigmoid(), u.sigmoid(), o.sigmoid()
    c = i * u + (1 - i) * state.c
    h = o * c
    return DeltaLSTMState(W, R, h, c), h
