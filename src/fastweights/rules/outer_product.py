"""The outer product of 1991, with an activation on the weights."""

from collections.abc import Callable
from typing import Any

import torch

from fastweights.core.errors import require_name
from fastweights.core.family import family
from fastweights.rules._activations import ACTIVATIONS
from fastweights.signature import Key, Matrix, Value, key_features


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

    @key_features("identity", "none")
    def outer_product(W: Matrix, k: Key, v: Value) -> Matrix:
        """Fast weight programmer of 1991: bounded sum of outer products.

            W <- sigma(W + v k^T)

        sigma is tanh. `make_outer_product` accepts other activations. Keys are used without a feature map. In the paper
        the query is the input itself; use the option `query="input"` of the layer.

        Source: Schmidhuber 1992 (doi:10.1162/neco.1992.4.1.131); Schlag et al. 2021 (arXiv:2102.11174), Eqs. 1-3, which
        leave sigma open.

        Can: fade.
        """
        return squash(W + torch.outer(v, k))

    return outer_product


outer_product = make_outer_product()
