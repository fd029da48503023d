"""The outer product of 1991, with an activation on the weights."""

import torch

from fastweights.signature import Key, Matrix, Value, keyed_by


@keyed_by("identity", "none")
def outer_product(W: Matrix, k: Key, v: Value) -> Matrix:
    """W <- tanh(W + v k^T): adds every association to weights that cannot grow out of their range.

    Keys are outputs of the slow network without a feature map. In the paper the query is the input itself; here it is a
    linear map of the input, as in all cells.

    Source: Schmidhuber 1991; Schlag et al. 2021, Eqs. 1-3, which leave the activation open.

    Can: fade.
    """
    return torch.tanh(W + torch.outer(v, k))
