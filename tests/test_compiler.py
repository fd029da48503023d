"""The compiler beyond the common guarantees: what it can compile, what it says otherwise, and its cache."""

from typing import Annotated, NamedTuple

import pytest
import torch
from torch import Tensor
from torch.nn.functional import elu, layer_norm, normalize, softplus

from fastweights import Cell, InputError, explain, scan
from fastweights.signature import Key, Matrix, Output, Rate, Slot, Value
from fastweights.testing import scan_checks
from fastweights.testing.samples import Shape, sample_inputs

SHAPES = [Shape(2, 7, 2, 3, 5), Shape(1, 5, 1, 20, 20), Shape(2, 6, 1, 8, 4)]


class Two(NamedTuple):
    A: Matrix
    B: Annotated[Tensor, Slot("K V", "memory")]


class Memory(NamedTuple):
    W: Matrix


class Vector(NamedTuple):
    h: Output


class Three(NamedTuple):
    W: Annotated[Tensor, Slot("3 V K", "memory")]
    c: Output


class Square(NamedTuple):
    W: Annotated[Tensor, Slot("K K", "memory")]


class Inputs(NamedTuple):
    q: Key
    k: Key
    v: Value
    beta: Rate


class ThreeInputs(NamedTuple):
    q: Key
    k: Annotated[Tensor, Slot("3 K", "key")]
    v: Annotated[Tensor, Slot("3 V", "value")]
    beta: Annotated[Tensor, Slot("3", "rate")]


class Params(NamedTuple):
    R: Annotated[Tensor, Slot("V V", "parameter")]
    b: Annotated[Tensor, Slot("V", "parameter")]


def two_matrices(state: Two, x: Inputs) -> tuple[Two, Value]:
    """A nonlinearity that no cell of the library has, and two matrices that feed each other."""
    A = torch.sin(state.A) + torch.outer(x.v, x.k) / (1 + state.A**2)
    B = state.B - x.beta * torch.outer(x.k, A @ x.q)
    return Two(A, B), A @ (B @ x.v) / B.shape[0]


def normed(state: Memory, x: Inputs) -> tuple[Memory, Value]:
    """Frobenius and layer norms."""
    W = state.W + x.beta * torch.outer(x.v, x.k)
    W = W / torch.linalg.vector_norm(W).clamp(min=1.0)
    return Memory(W), layer_norm(W @ x.q, x.v.shape) + normalize(x.v, dim=-1)


def gates(state: Three, x: ThreeInputs) -> tuple[Three, Value]:
    """Three matrices in one state, under vmap."""
    W = torch.vmap(lambda W, k, v, b: W + b * torch.outer(v - W @ k, k))(state.W, x.k.softmax(-1), x.v, x.beta)
    i, u, o = (torch.vmap(lambda W: W @ x.q)(W) + state.W @ x.k[0]).unbind(0)
    c = i.sigmoid() * u.tanh() + (1 - i.sigmoid()) * state.c
    return Three(W, c), o.sigmoid() * c


def inner_loop(state: Memory, x: Inputs) -> tuple[Memory, Value]:
    """A few steps of relaxation inside a step."""
    W = 0.9 * state.W + 0.5 * torch.outer(x.v, x.k)
    h = torch.relu(x.v)
    for _ in range(3):
        h = torch.relu(layer_norm(x.v + W @ (W.T @ h), x.v.shape))
    return Memory(W), h


def with_params(state: Vector, x: Inputs, params: Params) -> tuple[Vector, Value]:
    """Slow recurrent weights."""
    h = torch.tanh(params.R @ state.h + params.b * softplus(x.v)) * x.beta + (x.q @ x.k)
    return Vector(h), h.exp() / (h.exp() + 1)


def pieces(state: Two, x: Inputs) -> tuple[Two, Value]:
    """Views of every kind."""
    joined = torch.cat([x.q, x.v, x.k])
    rolled = torch.roll(joined, 2, 0).flip(0)
    a, b = torch.stack([x.v, 2 * x.v]).unbind(0)
    first = rolled[: len(x.v)] + rolled[-len(x.v) :] + joined[::2].sum() * a[0] + b
    A = torch.where(state.A > 0.5, state.A, 0.5 * state.A) + first[:, None] * x.k
    B = state.B.clone() + A.t() * 0.1 + x.q.unsqueeze(-1).expand(-1, len(x.v)) * A.amax()
    flat = A.flatten()[: len(x.v)] + B.reshape(-1)[-len(x.v) :] + torch.einsum("vk,k->v", A, x.q)
    return Two(A.tanh(), B.sigmoid()), flat + A.softmax(0).mean(1) + A.var(-1) + torch.split(first, 1)[0]


def bounded(state: Square, x: Inputs) -> tuple[Square, Key]:
    """Elementwise functions, comparisons, and matrix products of rank two."""
    k = elu(x.k - 0.3) + 1
    k = k / k.sum()
    W = (state.W @ state.W).clamp(-1, 1) * 0.5 + torch.maximum(torch.outer(k, x.q), torch.outer(x.q, k)).sqrt()
    W = torch.where((W > 0.1) & ~(W > 0.9), W, W.abs() * x.beta.log().neg().log1p())
    return Square(W), (W @ x.q).log_softmax(-1) + torch.eye(len(k), dtype=k.dtype) @ k + (x.q**3).rsqrt()


CELLS = [two_matrices, normed, gates, inner_loop, with_params, pieces, bounded]


@pytest.mark.parametrize("function", CELLS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=["float64", "float32"])
def test_users_cell_compiles_without_registration(function, dtype):
    cell = Cell.of(function)
    for shape in SHAPES:
        given = scan_checks.arguments(cell, shape, dtype)
        want = scan_checks.results_and_gradients(cell, "reference", given.to(torch.float64))
        scan_checks.assert_close(scan_checks.results_and_gradients(cell, "compiled", given), want, dtype, shape)
