"""Memora: a memory whose rows are distributions."""

from typing import NamedTuple

import torch

from fastweights.signature import Decay, Key, Matrix, Rate, Value, key_features


class MemoraState(NamedTuple):
    """The logarithm of the memory, up to one constant per row."""

    A: Matrix


class MemoraInputs(NamedTuple):
    q: Key
    k: Key
    v: Value
    decay: Decay
    beta: Rate


@key_features("identity", "l2")
def memora(state: MemoraState, x: MemoraInputs) -> tuple[MemoraState, Value]:
    """Memora: mirror descent; every row of W is a distribution.

        A <- decay A - beta (W k - v) k^T
        W = softmax(A)
        y = W q

    Every row of W distributes a weight of 1 over the key features. W stays bounded, and a write to one feature takes
    weight from the others. With a decay, the rows of W become uniform over time.

    Source: Behrouz et al. 2025 (MIRAS, arXiv:2504.13173), Eq. 27.

    Can: overwrite, fade.
    """
    error = state.A.softmax(-1) @ x.k - x.v
    A = x.decay * state.A - x.beta * torch.outer(error, x.k)
    return MemoraState(A), A.softmax(-1) @ x.q
