"""The fast weight memory of Schlag et al. 2021: a delta rule on a matrix of bounded norm."""

from typing import NamedTuple

import torch

from fastweights.cells._layer_norm import standardise
from fastweights.rules.delta import delta
from fastweights.signature import Key, Matrix, Rate, Value, key_features

ROUNDING = 1e-5
"""A squared norm that exceeds 1 by less is taken as 1: a step that writes nothing then scales nothing."""


class FastWeightMemoryState(NamedTuple):
    W: Matrix


class FastWeightMemoryInputs(NamedTuple):
    q: Key
    k: Key
    v: Value
    beta: Rate


@key_features("tanh", "none")
def fast_weight_memory(state: FastWeightMemoryState, x: FastWeightMemoryInputs) -> tuple[FastWeightMemoryState, Value]:
    """Fast weight memory: delta rule with a bound on the norm.

        M = W + beta (v - W k) k^T
        W <- M / max(1, |M|)
        y = LN(W q)

    LN has no parameters. Keys go through tanh, or DPFP-1 in one experiment, and are not normalised. The authors' code
    does not bound W at the first step. Where beta |v| |k| > 1 there, it differs from this cell.

    Source: Schlag et al. 2021 (Learning Associative Inference Using Fast Weight Memory, arXiv:2011.07831), Eqs. 6-9;
    compared with DeltaNet in Schlag et al. 2021 (arXiv:2102.11174), Sec. 6.1.2.

    Can: overwrite, fade.
    """
    W = delta(state.W, x.k, x.v, x.beta)
    square = W.square().sum()
    W = W * torch.where(square > 1 + ROUNDING, square, 1.0).rsqrt()
    return FastWeightMemoryState(W), standardise(W @ x.q)
