"""Backpropamine: a recurrent network whose neuromodulator decides how fast its connections learn."""

from collections.abc import Mapping
from typing import Annotated, NamedTuple

import torch
from torch import Tensor

from fastweights.signature import Output, RecurrentMatrix, TensorSpec, Value, computes_rates

LIMIT = 2.0
"""Largest size of a Hebbian trace, as in the authors' code."""


class BackpropamineState(NamedTuple):
    hebb: RecurrentMatrix
    y: Output


class BackpropamineInputs(NamedTuple):
    x: Value


class BackpropamineParams(NamedTuple):
    """Fixed weights, their plasticity, and the neuromodulator with its effect on every unit."""

    fixed: Annotated[Tensor, TensorSpec("V V", "weight")]
    plasticity: Annotated[Tensor, TensorSpec("V V", "small")]
    """Traces reach their limit within a few steps, and with a larger plasticity make the first outputs chaotic."""
    modulator: Annotated[Tensor, TensorSpec("V", "weight")]
    effect: Annotated[Tensor, TensorSpec("V", "gain")]
    offset: Annotated[Tensor, TensorSpec("V", "bias")]


def _rates(state: BackpropamineState, x: BackpropamineInputs, params: BackpropamineParams) -> Mapping[str, Tensor]:
    return {"eta": _modulated(_activity(state, x, params), params)}


@computes_rates(_rates)
def backpropamine(
    state: BackpropamineState, x: BackpropamineInputs, params: BackpropamineParams
) -> tuple[BackpropamineState, Value]:
    """Backpropamine: Hebbian traces with a learned neuromodulator.

        y <- tanh(x + (F + A * H) y')
        eta = effect tanh(m . y) + offset
        H <- clip(H + (eta * y) y'^T)

    y' is the previous output. F are fixed weights, and A is how much of its Hebbian trace H each connection uses. The
    network computes one neuromodulator, whose effect on the learning rate differs between units. Traces are clipped to
    [-2, 2]. This is the simple neuromodulation of the paper; the retroactive one keeps an eligibility trace.

    Source: Miconi et al. 2019 (Backpropamine, arXiv:2002.10585), Sec. 3, with the neuromodulator in the form of the
    authors' code, `maze.py`.

    Can: recur, modify itself.
    """
    y = _activity(state, x, params)
    hebb = (state.hebb + torch.outer(_modulated(y, params) * y, state.y)).clamp(-LIMIT, LIMIT)
    return BackpropamineState(hebb, y), y


def _activity(state: BackpropamineState, x: BackpropamineInputs, params: BackpropamineParams) -> Tensor:
    return torch.tanh(x.x + (params.fixed + params.plasticity * state.hebb) @ state.y)


def _modulated(y: Tensor, params: BackpropamineParams) -> Tensor:
    """The learning rate of every unit."""
    return params.effect * torch.tanh(params.modulator @ y) + params.offset
