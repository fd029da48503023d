"""The outer product of 1991, with an activation on the weights."""

from collections.abc import Callable
from typing import Any

import torch

from fastweights.core.errors import require_name
from fastweights.core.family import family
from fastweights.rules._activations import ACTIVATIONS
from fastweights.signature import Key, Matrix, Value, keyed_by


@family
def make_outer_product(activation: str = "tanh") -> Callable[..., Any]:
    """The rule with an activation function.

    Args:
        activation: "identity", "relu", "sigmoid", "softmax" (over the row of a value) or "tanh".

    Raises:
        InputError: the activation is unknown.
    """
    require_name("activation", activation, ACTIVATIONS)
    squash = ACTIVATIONS[activation]

    @keyed_by("identity", "none")
    def outer_product(W: Matrix, k: Key, v: Value) -> Matrix:
        """W <- sigma(W + v k^T): adds associations to weights that an activation sigma keeps in its range.

        sigma is tanh here; `make_outer_product` takes others. Keys are used as the slow network emits them. In the
        paper the query is the input itself, for which the layer has the option `query="input"`.

        Source: Schmidhuber 1991; Schlag et al. 2021, Eqs. 1-3, which leave the activation open.

        Can: fade.
        """
        return squash(W + torch.outer(v, k))

    return outer_product


outer_product = make_outer_product()
