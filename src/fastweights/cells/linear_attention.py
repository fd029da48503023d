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


def _program(x: LinearAttentionInputs) -> Program:
    # z is one more row of W: the row that is written with the value 1.
    v = torch.cat([x.v, torch.ones_like(x.v[..., :1])], dim=-1)
    return Program(x.q, x.k, v, Affine(decay=1.0, erase=0.0, write=1.0))


def _pack(state: LinearAttentionState) -> Tensor:
    return torch.cat([state.W, state.z.unsqueeze(-2)], dim=-2)


def _unpack(W: Tensor) -> LinearAttentionState:
    return LinearAttentionState(W[..., :-1, :], W[..., -1, :])


def _read(read: Tensor) -> Tensor:
    return read[..., :-1] / (read[..., -1:] + EPS)


@keyed_by("elu", "none")
@affine(AffineForm(_program, _pack, _unpack, _read))
def linear_attention(state: LinearAttentionState, x: LinearAttentionInputs) -> tuple[LinearAttentionState, Value]:
    """W <- W + v k^T, z <- z + k, y = W q / (z . q): attention with a kernel in place of the softmax.

    Source: Katharopoulos et al. 2020; Schlag et al. 2021, Eqs. 17-19.

    Can: accumulate.
    """
    W = sum_rule(state.W, x.k, x.v)
    z = state.z + x.k
    return LinearAttentionState(W, z), W @ x.q / (z @ x.q + EPS)
