"""The Delta LSTM whose hidden state is a softmax."""

from fastweights.cells._delta_lstm import DeltaLSTMInputs, DeltaLSTMState, write
from fastweights.signature import Value


def delta_lstm_v1(state: DeltaLSTMState, x: DeltaLSTMInputs) -> tuple[DeltaLSTMState, Value]:
    """Delta LSTM, version 1: the hidden state is a softmax.

        i, u, o = sigmoid(W q + R h)
        c <- i * u + (1 - i) * c
        h <- softmax(o * c)

    Each of i, u and o has its own fast weights W and R. At the first step h = 0, so that R has no effect. This is
    version 1 of the authors' code.

    Source: Irie et al. 2021 (arXiv:2106.06295), appendix A.2 (ablation).

    Can: overwrite, recur.
    """
    W, R, z = write(state, x)
    i, u, o = (R @ state.h + z).unbind()
    i, u, o = i.sigmoid(), u.sigmoid(), o.sigmoid()
    c = i * u + (1 - i) * state.c
    h = (o * c).softmax(-1)
    return DeltaLSTMState(W, R, h, c), h
