"""The multi-level fast-weight RNN of Ba et al.: it stores a state, works on a part, and comes back."""

from typing import Annotated, NamedTuple

from torch import Tensor

from fastweights.cells.fast_weight_rnn import FastWeightRNNState, Units, layer_norms, settle
from fastweights.rules.hebbian import hebbian
from fastweights.signature import Control, Slot


class MultiLevelFastWeightRNNInputs(NamedTuple):
    """x, and two control signals, 0 or 1: store the state and wipe it; use the weights for integration."""

    x: Units
    store: Control
    integrate: Control


class MultiLevelFastWeightRNNParams(NamedTuple):
    """As those of the fast-weight RNN, and the recurrent weights for integration."""

    W: Annotated[Tensor, Slot("R R", "weight")]
    W_integrate: Annotated[Tensor, Slot("R R", "weight")]
    gain: Annotated[Tensor, Slot("S R", "gain")]
    bias: Annotated[Tensor, Slot("S R", "bias")]
    decay: Annotated[Tensor, Slot("", "constant")]
    eta: Annotated[Tensor, Slot("", "constant")]


def multi_level_fast_weight_rnn(
    state: FastWeightRNNState, x: MultiLevelFastWeightRNNInputs, params: MultiLevelFastWeightRNNParams
) -> tuple[FastWeightRNNState, Units]:
    """A <- lambda A + eta h h^T and h <- 0 where store is 1; then h <- relu(LN(W h + x + A h')) for S steps.

    Fast weights change only where the control signal says so. Where integrate is 1, other recurrent weights stand for
    W. The paper gives the signals from outside, and does not say when; any number between 0 and 1 mixes.

    Source: Ba et al. 2016, Sec. 4.2 and Fig. 3.

    Can: fade, recur.
    """
    A = state.A + x.store * (hebbian(state.A, state.h, state.h, params.decay, params.eta) - state.A)
    h = state.h - x.store * state.h
    W = params.W + x.integrate * (params.W_integrate - params.W)
    h = settle(A.mv, W @ h + x.x, layer_norms(params.gain, params.bias))
    return FastWeightRNNState(A, h), h
