"""The Delta LSTM: an LSTM whose six matrices are programmed."""

from fastweights.cells._delta_lstm import DeltaLSTMInputs, DeltaLSTMState, write
from fastweights.signature import Value


def delta_lstm(state: DeltaLSTMState, x: DeltaLSTMInputs) -> tuple[DeltaLSTMState, Value]:
    """Delta LSTM: an LSTM whose weights the delta rule writes.

        s = softmax(h)
        i, o = sigmoid(W q + R s)
        u = W q + R s
        c <- i * u + (1 - i) * c
        h <- o * c

    Each of i, o and u has its own fast weights W and R. The forget gate is 1 - i. Neither u nor c goes through an
    activation. This is version 4 of the authors' code.

    Source: Irie et al. 2021 (arXiv:2106.06295), Sec. 3.1 and appendix A.2.

    Can: overwrite, recur.
    """
    W, R, z = write(state, x)
    i, u, o = (R @ state.h.softmax(-1) + z).unbind()
    i, o = i.sigmoid(), o.sigmoid()
    c = i * u + (1 - i) * state.c
    h = o * c
    return DeltaLSTMState(W, R, h, c), h
