"""The fast-weight RNN of Ba et al.: a recurrent network that attends to its recent past."""

from collections.abc import Callable
from functools import partial
from typing import Annotated, Any, NamedTuple

from torch import Tensor

from fastweights.cells._layer_norm import standardise
from fastweights.core.arguments import Size, checked
from fastweights.core.family import family
from fastweights.rules.hebbian import hebbian
from fastweights.signature import Slot

Units = Annotated[Tensor, Slot("R", "value")]
"""A number for each of the R units; at least 3, since LayerNorm leaves nothing but signs of 2."""


class FastWeightRNNState(NamedTuple):
    """Fast weights, and the state of R units."""

    A: Annotated[Tensor, Slot("R R", "memory")]
    h: Annotated[Tensor, Slot("R", "memory")]


class FastWeightRNNInputs(NamedTuple):
    x: Units


class FastWeightRNNParams(NamedTuple):
    """Recurrent weights, gain and bias of each of the S inner steps, decay lambda and rate eta of the fast weights."""

    W: Annotated[Tensor, Slot("R R", "weight")]
    gain: Annotated[Tensor, Slot("S R", "gain")]
    bias: Annotated[Tensor, Slot("S R", "bias")]
    decay: Annotated[Tensor, Slot("", "constant")]
    eta: Annotated[Tensor, Slot("", "constant")]


class PlainFastWeightRNNParams(NamedTuple):
    """Recurrent weights, decay lambda and rate eta of the fast weights: without layer normalisation."""

    W: Annotated[Tensor, Slot("R R", "weight")]
    decay: Annotated[Tensor, Slot("", "constant")]
    eta: Annotated[Tensor, Slot("", "constant")]


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
        """A <- lambda A + eta h h^T, then h <- relu(LN(W h + x + A h')) for S steps, h' starting at relu(W h + x).

        W h + x stays as it is during the inner steps. What is stored is the state before this step, never the
        preliminary one. Whether the inner steps share gain and bias is open in the paper; here each has its own.
        `make_fast_weight_rnn(False)` is the step without LN.

        Source: Ba et al. 2016, Eqs. 1-2 and 5, with ReLU (Sec. 4).

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
