"""The example of compiler.md: the delta rule as a cell."""

from typing import NamedTuple

import torch

from fastweights.signature import Key, Matrix, Rate, Value


class State(NamedTuple):
    W: Matrix


class Inputs(NamedTuple):
    q: Key
    k: Key
    v: Value
    beta: Rate


def small(state: State, x: Inputs) -> tuple[State, Value]:
    """W <- W + beta (v - W k) k^T, y = W q."""
    W = state.W + x.beta * torch.outer(x.v - state.W @ x.k, x.k)
    return State(W), W @ x.q
