"""The Delta LSTM with a skip connection."""

from fastweights.cells._delta_lstm import DeltaLSTMInputs, DeltaLSTMState, write
from fastweights.signature import Value


def delta_lstm_v3(state: DeltaLSTMState, x: DeltaLSTMInputs) -> tuple[DeltaLSTMState, Value]:
    """Delta LSTM, version 3: with a residual path to the output.

        s = softmax(h)
        i, u, o = sigmoid(W q + R s)
        c <- i * u + (1 - i) * c
        h <- o * c + W_u q_u

    Each of i, u and o has its own fast weights W and R. The feed-forward part of u, before the sigmoid, is added to the
    output. This is version 3 of the authors' code.

    Source: Irie et al. 2021 (arXiv:2106.06295), appendix A.2 (ablation).

    Can: overwrite, recur.
    """
    W, R, z = write(state, x)
    i, u, o = (R @ state.h.softmax(-1) + z).unbind()
    i, u, o = i.sigmoid(), u.sigmoid(), o.sigmoid()
    c = i * u + (1 - i) * state.c
    h = o * c + z[1]
    return DeltaLSTMState(W, R, h, c), h
