"""The Delta RNN whose output is squashed."""

from collections.abc import Callable
from typing import Any, NamedTuple

from fastweights.cells.delta_rnn import DeltaRNNState
from fastweights.core.errors import require_name
from fastweights.core.family import family
from fastweights.rules._activations import ACTIVATIONS
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


@family
def make_delta_rnn_v1(activation: str = "softmax") -> Callable[..., Any]:
    """The step with an activation function.

    Args:
        activation: "identity", "relu", "sigmoid", "softmax" or "tanh".

    Raises:
        InputError: the activation is unknown.
    """
    require_name("activation", activation, ACTIVATIONS)
    squash = ACTIVATIONS[activation]

    def delta_rnn_v1(state: DeltaRNNState, x: DeltaRNNV1Inputs) -> tuple[DeltaRNNState, Value]:
        """Delta RNN, version 1: the output goes through an activation.

            y <- sigma(W softmax(q) + R y)

        sigma is the softmax, as in version 1 of the authors' code. `make_delta_rnn_v1` accepts other activations. The
        delta rule writes W and R with softmax keys. At the first step y = 0, so that R has no effect.

        Source: Irie et al. 2021 (arXiv:2106.06295), Eq. 11 with fast weights, and appendix A.2 (ablation).

        Can: overwrite, recur.
        """
        W = delta(state.W, x.k.softmax(-1), x.v, x.beta)
        R = delta(state.R, x.recurrent_k.softmax(-1), x.recurrent_v, x.recurrent_beta)
        y = squash(W @ x.q.softmax(-1) + R @ state.y)
        return DeltaRNNState(W, R, y), y

    return delta_rnn_v1


delta_rnn_v1 = make_delta_rnn_v1()
