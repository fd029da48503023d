"""The fast-weight RNN of Ba et al.: a recurrent network that attends to its recent past."""

from collections.abc import Callable
from typing import Annotated, NamedTuple

from torch import Tensor

from fastweights.cells._layer_norm import standardise
from fastweights.rules.hebbian import hebbian
from fastweights.signature import TensorSpec

Units = Annotated[Tensor, TensorSpec("R", "value")]
"""One number per unit. R is at least 3, since LayerNorm of 2 numbers leaves only their signs."""


class FastWeightRNNState(NamedTuple):
    """Fast weights, and the state of R units."""

    A: Annotated[Tensor, TensorSpec("R R", "memory")]
    h: Annotated[Tensor, TensorSpec("R", "memory")]


class FastWeightRNNInputs(NamedTuple):
    x: Units


class FastWeightRNNParams(NamedTuple):
    """Recurrent weights, gain and bias of each of the S inner steps, decay lambda and rate eta of the fast weights."""

    W: Annotated[Tensor, TensorSpec("R R", "weight")]
    gain: Annotated[Tensor, TensorSpec("S R", "gain")]
    bias: Annotated[Tensor, TensorSpec("S R", "bias")]
    decay: Annotated[Tensor, TensorSpec("", "constant")]
    eta: Annotated[Tensor, TensorSpec("", "constant")]


def settle(apply_A: Callable[[Tensor], Tensor], boundary: Tensor, gains: Tensor, biases: Tensor) -> Tensor:
    """h <- relu(LN(boundary + A h)) for S steps, from relu(boundary); gains and biases `[S, ..., R]`."""
    h = boundary.relu()
    for gain, bias in zip(gains, biases, strict=True):
        h = (standardise(boundary + apply_A(h)) * gain + bias).relu()
    return h


def fast_weight_rnn(
    state: FastWeightRNNState, x: FastWeightRNNInputs, params: FastWeightRNNParams
) -> tuple[FastWeightRNNState, Units]:
    """A <- lambda A + eta h h^T, then h <- relu(LN(W h + x + A h')) for S steps, h' starting at relu(W h + x).

    W h + x is constant during the inner steps. The stored state is that before this step, never the preliminary one.
    The paper does not say whether the inner steps share gain and bias; here each has its own.

    Source: Ba et al. 2016, Eqs. 1-2 and 5, with ReLU (Sec. 4).

    Can: fade, recur.
    """
    A = hebbian(state.A, state.h, state.h, params.decay, params.eta)
    h = settle(A.mv, params.W @ state.h + x.x, params.gain, params.bias)
    return FastWeightRNNState(A, h), h
