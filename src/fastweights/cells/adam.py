"""A linear memory that is trained by Adam."""

from typing import Annotated, NamedTuple

import torch
from torch import Tensor

from fastweights.signature import Decay, Key, Matrix, Rate, TensorSpec, Value, key_features

EPS = 1e-6
"""Added to the denominators."""
Weight = Annotated[Tensor, TensorSpec("", "memory")]


class AdamState(NamedTuple):
    """The memory, the sums of gradients and of their squares, and the sums of the weights of both."""

    W: Matrix
    mean: Matrix
    square: Matrix
    weight_of_mean: Weight
    weight_of_square: Weight


class AdamInputs(NamedTuple):
    q: Key
    k: Key
    v: Value
    decay: Decay
    momentum: Rate
    square_momentum: Decay
    beta: Rate


@key_features("identity", "l2")
def adam(state: AdamState, x: AdamInputs) -> tuple[AdamState, Value]:
    """Adam: descent on the recall error with adaptive step sizes.

        G = (v - W k) k^T
        m <- b_1 m + (1 - b_1) G
        s <- b_2 s + (1 - b_2) G * G
        W <- decay W + beta m / sqrt(s)
        y = W q

    m and s are weighted means of G and G * G so far, which start at 0 and are divided by the sums of their weights. b_1
    and b_2 are the inputs `momentum` and `square_momentum`. Dividing by the sums of the weights is Adam's
    correction of the bias towards 0. Every number of W moves by about beta per token, however small its error.

    Source: Kingma and Ba 2015 (Adam, arXiv:1412.6980), Algorithm 1, with weight decay as by Loshchilov
    and Hutter 2019.

    Can: overwrite, fade.
    """
    gradient = torch.outer(x.v - state.W @ x.k, x.k)
    mean = x.momentum * state.mean + (1 - x.momentum) * gradient
    square = x.square_momentum * state.square + (1 - x.square_momentum) * gradient.square()
    weight_of_mean = x.momentum * state.weight_of_mean + 1 - x.momentum
    weight_of_square = x.square_momentum * state.weight_of_square + 1 - x.square_momentum
    change = mean / (weight_of_mean + EPS) * (square / (weight_of_square + EPS) + EPS).rsqrt()
    W = x.decay * state.W + x.beta * change
    return AdamState(W, mean, square, weight_of_mean, weight_of_square), W @ x.q
