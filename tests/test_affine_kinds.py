"""Cells of every kind that runs in chunks, as a user writes them: without a declaration, and equal to the reference."""

from typing import Annotated, NamedTuple

import pytest
import torch
from torch import Tensor

from fastweights import Cell, explain
from fastweights.signature import Decay, Key, KeyDecay, Matrix, Rate, TensorSpec, Value
from fastweights.testing import scan_checks
from fastweights.testing.samples import Shape, sample_state

SHAPES = [
    Shape(2, 37, 3, 5, 4),
    Shape(1, 20, 2, 1, 1),
    Shape(1, 20, 1, 1, 3),
    Shape(2, 9, 1, 3, 1),
    Shape(1, 1, 1, 2, 2),
]


class Inputs(NamedTuple):
    q: Key
    k: Key
    v: Value
    beta: Rate
    momentum: Rate
    decay: Decay
    column_decay: KeyDecay
    row_decay: Annotated[Tensor, TensorSpec("V", "decay")]


class One(NamedTuple):
    W: Matrix


# Delays


class Trapezoid(NamedTuple):
    W: Matrix
    k_last: Annotated[Tensor, TensorSpec("K", "memory")]
    v_last: Annotated[Tensor, TensorSpec("V", "memory")]


def trapezoidal(state: Trapezoid, x: Inputs) -> tuple[Trapezoid, Value]:
    """Mamba-3's rule: writes the token before and this one, weighted."""
    before = (1 - x.beta) * x.decay * torch.outer(state.v_last, state.k_last)
    W = x.decay * state.W + before + x.beta * torch.outer(x.v, x.k)
    return Trapezoid(W, x.k, x.v), W @ x.q


class Window(NamedTuple):
    W: Matrix
    window: Annotated[Tensor, TensorSpec("J K", "memory")]


class Taps(NamedTuple):
    taps: Annotated[Tensor, TensorSpec("J K", "constant")]


def short_convolution(state: Window, x: Inputs, params: Taps) -> tuple[Window, Value]:
    """A delta rule whose key is a convolution over the last keys."""
    window = torch.cat([state.window[1:], x.k.unsqueeze(0)])
    k = torch.nn.functional.silu((window * params.taps).sum(0))
    W = state.W + x.beta * torch.outer(x.v - state.W @ k, k)
    return Window(W, window), W @ x.q


def rolled_window(state: Window, x: Inputs) -> tuple[Window, Value]:
    """A window that is rolled, and of which one place is written."""
    window = state.window.roll(1, 0)
    window[0] = x.k * x.beta
    W = x.decay * state.W + torch.outer(x.v, window.mean(0) - state.window[0])
    return Window(W, window), W @ x.q


class Columns(NamedTuple):
    W: Matrix
    window: Annotated[Tensor, TensorSpec("K 3", "memory")]
    recalled: Annotated[Tensor, TensorSpec("V", "memory")]


def window_of_columns(state: Columns, x: Inputs) -> tuple[Columns, Value]:
    """A window along the last axis, and what an affine state recalled in the step before."""
    window = torch.stack([x.k, state.window[:, 0], state.window[:, 1]], 1)
    W = state.W * x.column_decay + torch.outer(x.v, window.sum(1).tanh())
    recalled = (W @ x.q).tanh()
    return Columns(W, window, recalled), recalled + state.recalled * x.v


class Chain(NamedTuple):
    last: Annotated[Tensor, TensorSpec("K", "memory")]
    before_last: Annotated[Tensor, TensorSpec("K", "memory")]
    rate: Annotated[Tensor, TensorSpec("", "memory")]
    W: Matrix


def chain_of_delays(state: Chain, x: Inputs) -> tuple[Chain, Value]:
    """A delay of a delay, and a delayed number."""
    k = x.k + state.rate * state.before_last
    W = state.W - x.beta * torch.outer(state.W @ k - x.v, k)
    return Chain(x.k, state.last, x.beta, W), W @ x.q


def queue(state: One, x: Inputs) -> tuple[One, Value]:
    """The last rows, one per step, which are read by content."""
    W = torch.cat([state.W[1:], (x.k * x.beta).unsqueeze(0)])
    return One(W), (W @ x.q).softmax(0) * x.v


# The table

FORMS = {
    queue: "W <- the last 4 x",
    trapezoidal: "k_last <- x, v_last <- x, W <- W a + 2 (v k^T)",
    short_convolution: "window <- the last 2 x, W <- W - W e f^T + v k^T",
    rolled_window: "window <- the last 2 x, W <- W a + v k^T",
    window_of_columns: "window <- the last 3 x, W <- W diag(a) + v k^T, recalled <- x",
    chain_of_delays: "last <- x, before_last <- x, rate <- x, W <- W - W e f^T + v k^T",
}
"""The form that `explain` prints, by cell."""


def arguments_of(cell, shape):
    """A call with resets to a state that is not 0, and the same call with lengths, and without a state."""
    start = sample_state(cell, shape, seed=5)
    full = scan_checks.arguments(cell, shape)._replace(initial=type(start)(*(x[0] for x in start)))
    lengths = torch.tensor([shape.T // 2, shape.T][: shape.B])
    return [full, full._replace(lengths=lengths), full._replace(reset=None, state=None), full._replace(initial=None)]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("step", FORMS, ids=lambda f: getattr(f, "__name__", ""))
def test_a_cell_of_every_kind_equals_the_reference_in_chunks(step, dtype):
    cell = Cell.from_function(step)
    for shape in SHAPES:
        for a in arguments_of(cell, shape):
            want = scan_checks.results_and_gradients(cell, "reference", a)
            got = scan_checks.results_and_gradients(cell, "chunkwise", a.to(dtype))
            scan_checks.assert_close(got, want, dtype, shape)


@pytest.mark.parametrize(("step", "form"), FORMS.items(), ids=lambda x: getattr(x, "__name__", ""))
def test_explain_names_the_form(step, form):
    cell = Cell.from_function(step)
    a = scan_checks.arguments(cell, SHAPES[0])
    assert f"chunkwise  could run: {form}\n" in str(explain(cell, a.inputs, a.state, params=a.params))
