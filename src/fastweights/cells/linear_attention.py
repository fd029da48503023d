"""Linear attention: the sum rule, read relative to all keys written so far."""

from typing import NamedTuple

import torch
from torch import Tensor

from fastweights.affine import Affine, AffineForm, Program, affine
from fastweights.rules.sum import sum as sum_rule
from fastweights.signature import Accumulator, Key, Matrix, Value, keyed_by

EPS = 1e-5
"""Added to the denominator, as in the papers' language-model code."""


class LinearAttentionState(NamedTuple):
    W: Matrix
    z: Accumulator


class LinearAttentionInputs(NamedTuple):
    q: Key
    k: Key
    v: Value


def with_one(v: Tensor) -> Tensor:
    """z as one more row of W: the row that is written with the value 1."""
    return torch.cat([v, torch.ones_like(v[..., :1])], dim=-1)


def pack(state: LinearAttentionState) -> Tensor:
    """The state as one matrix, for the chunks."""
    return torch.cat([state.W, state.z.unsqueeze(-2)], dim=-2)


def unpack(W: Tensor) -> LinearAttentionState:
    """The state back from it."""
    return LinearAttentionState(W[..., :-1, :], W[..., -1, :])


def read_relative(read: Tensor) -> Tensor:
    """W q / (z . q) from both."""
    return read[..., :-1] / (read[..., -1:] + EPS)


def _program(x: LinearAttentionInputs) -> Program:
    return Program(x.q, x.k, with_one(x.v), Affine(decay=1.0, erase=0.0, write=1.0))


@keyed_by("elu", "none")
@affine(AffineForm(_program, pack, unpack, read_relative))
def linear_attention(state: LinearAttentionState, x: LinearAttentionInputs) -> tuple[LinearAttentionState, Value]:
    """W <- W + v k^T, z <- z + k, y = W q / (z . q): attention with a kernel in place of the softmax.

    Source: Katharopoulos et al. 2020; Schlag et al. 2021, Eqs. 17-19.

    Can: accumulate.
    """
    W = sum_rule(state.W, x.k, x.v)
    z = state.z + x.k
    return LinearAttentionState(W, z), W @ x.q / (z @ x.q + EPS)
