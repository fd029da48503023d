"""Moneta: a memory that minimises the third power of its errors and has a fixed norm."""

from typing import NamedTuple

import torch
from torch import Tensor

from fastweights.signature import Decay, Key, Matrix, Rate, Value, key_features


class MonetaState(NamedTuple):
    """The matrix A that descends; the memory is A / |A|_4^2."""

    A: Matrix


class MonetaInputs(NamedTuple):
    q: Key
    k: Key
    v: Value
    decay: Decay
    beta: Rate


@key_features("identity", "l2")
def moneta(state: MonetaState, x: MonetaInputs) -> tuple[MonetaState, Value]:
    """Moneta: descent on the 3-norm of the error, normalised.

        W = A / |A|_4^2
        e = W k - v
        A <- decay A - 3 beta (e * |e|) k^T
        y = W q

    Small errors are hardly corrected, large errors at once. The norm of W does not grow with the writes. The paper uses
    the powers p = 3 and q = 4. For others, use `Cell.from_loss(power(p), link=scaled(q), ...)`.

    Source: Behrouz et al. 2025 (MIRAS, arXiv:2504.13173), Eqs. 24-25.

    Can: overwrite, fade.
    """
    error = _weights(state.A) @ x.k - x.v
    A = x.decay * state.A - x.beta * torch.outer(3 * error * error.abs(), x.k)
    return MonetaState(A), _weights(A) @ x.q


def _weights(A: Tensor) -> Tensor:
    # Without the floor a memory of zeros would have no gradient.
    return A * (A.square() * A.square()).sum().clamp(min=1e-6).rsqrt()
