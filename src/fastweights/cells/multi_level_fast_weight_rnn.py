"""The multi-level fast-weight RNN of Ba et al.: it stores its state, processes a part, and restores the state."""

from typing import Annotated, NamedTuple

from torch import Tensor

from fastweights.cells.fast_weight_rnn import FastWeightRNNState, Units, layer_norms, settle
from fastweights.rules.hebbian import hebbian
from fastweights.signature import Control, TensorSpec


class MultiLevelFastWeightRNNInputs(NamedTuple):
    """x, and two control signals, 0 or 1: store the state and wipe it; use the weights for integration."""

    x: Units
    store: Control
    integrate: Control


class MultiLevelFastWeightRNNParams(NamedTuple):
    """Parameters of the fast-weight RNN, and the recurrent weights for integration."""

    W: Annotated[Tensor, TensorSpec("R R", "weight")]
    W_integrate: Annotated[Tensor, TensorSpec("R R", "weight")]
    gain: Annotated[Tensor, TensorSpec("S R", "gain")]
    bias: Annotated[Tensor, TensorSpec("S R", "bias")]
    decay: Annotated[Tensor, TensorSpec("", "constant")]
    eta: Annotated[Tensor, TensorSpec("", "constant")]


def multi_level_fast_weight_rnn(
    state: FastWeightRNNState, x: MultiLevelFastWeightRNNInputs, params: MultiLevelFastWeightRNNParams
) -> tuple[FastWeightRNNState, Units]:
    """Fast-weight RNN whose memory is written at marked steps.

        A <- lambda A + eta h h^T, h <- 0 "where store is 1"
        z = W h + x
        h_0 = relu(z)
        h_s = relu(LN(z + A h_(s-1))), s = 1, ..., S
        h <- h_S

    The fast weights A change only where the control signal `store` is 1. Where `integrate` is 1, other recurrent
    weights replace W. The paper does not say when the signals are 1. A number between 0 and 1 interpolates.

    Source: Ba et al. 2016 (arXiv:1610.06258), Sec. 4.2 and Fig. 3.

    Can: fade, recur.
    """
    A = state.A + x.store * (hebbian(state.A, state.h, state.h, params.decay, params.eta) - state.A)
    h = state.h - x.store * state.h
    W = params.W + x.integrate * (params.W_integrate - params.W)
    h = settle(A.mv, W @ h + x.x, layer_norms(params.gain, params.bias))
    return FastWeightRNNState(A, h), h
