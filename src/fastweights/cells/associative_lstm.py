"""The associative LSTM: a holographic memory of complex numbers."""

from typing import Annotated, NamedTuple

import torch
from torch import Tensor

from fastweights.signature import TensorSpec

Complex = Annotated[Tensor, TensorSpec("2 V", "memory")]
"""V complex numbers: real parts, then imaginary parts."""


class AssociativeLSTMState(NamedTuple):
    """S copies of the memory, and the output."""

    c: Annotated[Tensor, TensorSpec("S 2 V", "memory")]
    h: Complex


class AssociativeLSTMInputs(NamedTuple):
    """Inputs of the gates f, i and o and of the complex vectors u, r_i and r_o, in this order."""

    x: Annotated[Tensor, TensorSpec("9*V", "value")]


class AssociativeLSTMParams(NamedTuple):
    """Recurrent weights, and one permutation per copy, as a matrix of zeros and ones."""

    W: Annotated[Tensor, TensorSpec("9*V 2*V", "weight")]
    P: Annotated[Tensor, TensorSpec("S V V", "fixed weight")]


def associative_lstm(
    state: AssociativeLSTMState, x: AssociativeLSTMInputs, params: AssociativeLSTMParams
) -> tuple[AssociativeLSTMState, Complex]:
    """Associative LSTM: complex memory cells in noisy copies.

        c_s <- f * c_s + (P_s r_i) * (i * u)
        h <- o * bound(mean_s((P_s r_o) * c_s))

    The gates f, i and o and the vectors u, r_i and r_o are x + W h. P_s are permutations, one per copy s. Each gate is
    a sigmoid with one value per complex number. `bound` divides every complex number by max(1, modulus).

    Source: Danihelka et al. 2016 (Associative Long Short-Term Memory, arXiv:1602.03032), Sec. 5.

    Can: overwrite, fade, recur.
    """
    gates, vectors = (x.x + params.W @ state.h.flatten()).view(9, -1).split([3, 6])
    f, i, o = gates.sigmoid()
    u, r_i, r_o = _bound(vectors.unflatten(0, (3, 2)))
    # Both keys in one product, and no gradient for the fixed permutations: each saves a tenth of the time.
    P_r_i, P_r_o = (torch.cat([r_i, r_o]) @ params.P.detach().mT).split(2, dim=1)
    c = f * state.c + _times(P_r_i, i * u)
    h = o * _bound(_times(P_r_o, c).mean(0))
    return AssociativeLSTMState(c, h), h


def _bound(z: Tensor) -> Tensor:
    """z / max(1, |z|) for `[..., 2, V]`. The clamp precedes the root, so that the gradient at 0 is finite."""
    return z * z.square().sum(-2, keepdim=True).clamp(min=1).rsqrt()


def _times(a: Tensor, b: Tensor) -> Tensor:
    """Product of complex numbers, `[..., 2, V]`, as pairs of reals, since torch has no complex bfloat16."""
    a_real, a_imaginary = a.unbind(-2)
    b_real, b_imaginary = b.unbind(-2)
    parts = a_real * b_real - a_imaginary * b_imaginary, a_real * b_imaginary + a_imaginary * b_real
    return torch.stack(parts, dim=-2)
