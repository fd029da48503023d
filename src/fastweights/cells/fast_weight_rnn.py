"""The fast-weight RNN of Ba et al.: a recurrent network that attends to its recent past."""

from collections.abc import Callable
from functools import partial
from typing import Annotated, Any, NamedTuple

from torch import Tensor

from fastweights.cells._layer_norm import standardise
from fastweights.core.arguments import Size, checked
from fastweights.core.family import family
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


class PlainFastWeightRNNParams(NamedTuple):
    """Recurrent weights, decay lambda and rate eta of the fast weights: without layer normalisation."""

    W: Annotated[Tensor, TensorSpec("R R", "weight")]
    decay: Annotated[Tensor, TensorSpec("", "constant")]
    eta: Annotated[Tensor, TensorSpec("", "constant")]


Norm = Callable[[Tensor], Tensor]


def layer_norms(gains: Tensor, biases: Tensor) -> list[Norm]:
    """LayerNorm of each inner step, from gains and biases `[S, ..., R]`."""
    return [partial(_layer_norm, gain, bias) for gain, bias in zip(gains, biases, strict=True)]


def no_norms(steps: int) -> list[Norm]:
    """Nothing in each inner step."""
    return [_nothing] * steps


def _layer_norm(gain: Tensor, bias: Tensor, x: Tensor) -> Tensor:
    return standardise(x) * gain + bias


def _nothing(x: Tensor) -> Tensor:
    return x


def settle(apply_A: Callable[[Tensor], Tensor], boundary: Tensor, norms: list[Norm]) -> Tensor:
    """h <- relu(norm(boundary + A h)) for every inner step, from relu(boundary)."""
    h = boundary.relu()
    for norm in norms:
        h = norm(boundary + apply_A(h)).relu()
    return h


@family
@checked
def make_fast_weight_rnn(layer_norm: bool = True, steps: Size = 1) -> Callable[..., Any]:
    """The step with layer normalisation (Eq. 5 of the paper) or without it (Eq. 2).

    Args:
        layer_norm: Whether every inner step is normalised.
        steps: S without layer normalisation. With it, the number of gains is S.
    """

    def fast_weight_rnn(
        state: FastWeightRNNState, x: FastWeightRNNInputs, params: FastWeightRNNParams
    ) -> tuple[FastWeightRNNState, Units]:
        """Fast-weight RNN: an RNN that attends to its recent states.

            A <- lambda A + eta h h^T
            z = W h + x
            h_0 = relu(z)
            h_s = relu(LN(z + A h_(s-1))), s = 1, ..., S
            h <- h_S

        The state before the time step is stored in A; the preliminary state h_0 is never stored. The paper does not say
        whether the inner steps share the gain and bias of LN. Here each inner step has its own.
        `make_fast_weight_rnn(False)` has no LN.

        Source: Ba et al. 2016 (arXiv:1610.06258), Eqs. 1-2 and 5, with ReLU (Sec. 4).

        Can: fade, recur.
        """
        A = hebbian(state.A, state.h, state.h, params.decay, params.eta)
        norms = layer_norms(params.gain, params.bias) if layer_norm else no_norms(steps)
        h = settle(A.mv, params.W @ state.h + x.x, norms)
        return FastWeightRNNState(A, h), h

    if not layer_norm:
        fast_weight_rnn.__annotations__["params"] = PlainFastWeightRNNParams
    return fast_weight_rnn


fast_weight_rnn = make_fast_weight_rnn()
