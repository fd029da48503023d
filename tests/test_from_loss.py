"""Cells from losses. docs/how-to/memory-as-a-loss.md tests six more that equal cells of the library."""

import pickle

import numpy as np
import pytest
import torch
from torch.nn.functional import gelu

from fastweights import Cell, InputError, inner, make_layer, scan
from fastweights.signature import Decay
from fastweights.testing import scan_checks
from fastweights.testing.samples import Shape, sample_inputs, sample_params, sample_state
from fastweights.testing.tolerance import error, tolerance

EXACT = tolerance(torch.float64).forward
SHAPE = Shape(1, 6, 1, 4, 3)
FADING = {"retention": inner.scalar_decay, "decay_before_gradient": False}


def run(cell):
    """The inputs of the only head as arrays, its initial state, and the outputs."""
    x, state = sample_inputs(cell, SHAPE), sample_state(cell, SHAPE)
    y, _ = scan(cell, x, state, backend="reference")
    return type(x)(*(leaf[0, :, 0].numpy() for leaf in x)), state.W[0, 0].numpy(), y[0, :, 0]


def moneta(A):
    return A / (np.abs(A) ** 4).sum() ** (2 / 4)


def memora(A):
    return np.exp(A) / np.exp(A).sum(-1, keepdims=True)


@pytest.mark.parametrize(
    ("cell", "link", "slope"),
    [
        (Cell.from_loss(inner.huber(0.5), **FADING), lambda A: A, lambda e: np.clip(e, -0.5, 0.5)),
        (Cell.from_loss(inner.power(3.0), link=inner.scaled(4.0), **FADING), moneta, lambda e: 3 * e * np.abs(e)),
        (Cell.from_loss(inner.l2, link=inner.softmax, **FADING), memora, lambda e: e),
    ],
    ids=["yaad", "moneta", "memora"],
)
def test_memories_of_miras_equal_gradients_by_hand(cell, link, slope):
    x, A, y = run(cell)
    want = []
    for t in range(SHAPE.T):
        A = x.decay[t] * A - x.beta[t] * np.outer(slope(link(A) @ x.k[t] - x.v[t]), x.k[t])
        want.append(link(A) @ x.q[t])
    assert error(y, torch.tensor(np.array(want))) < EXACT


@pytest.mark.parametrize("p", [1.0, 1.5, 3.0])
def test_gradient_of_a_power_is_finite_at_zero_error(p):
    """The first step writes the stored value again: zeros to a memory of zeros."""
    cell = Cell.from_loss(inner.power(p), link=inner.scaled(3.0))
    x = sample_inputs(cell, SHAPE)
    x = x._replace(v=x.v.index_fill(1, torch.tensor([0]), 0).requires_grad_())
    for backend in ("reference", "compiled"):
        y, _ = scan(cell, x, backend=backend)
        assert y.isfinite().all()
        if p >= 2:
            assert torch.autograd.grad(y.sum(), x.v)[0].isfinite().all()


def test_several_inner_steps_equal_one_with_a_higher_rate():
    """For keys of length 1, each step multiplies the error by 1 - beta."""
    cell, delta = Cell.from_loss(inner.l2, steps=3), Cell.from_name("delta")
    x = sample_inputs(cell, SHAPE)
    want, _ = scan(delta, delta.Inputs(*x._replace(beta=1 - (1 - x.beta) ** 3)), backend="reference")
    assert error(scan(cell, x, backend="reference")[0], want) < EXACT


def test_normalised_memory_equals_ttt_linear():
    """Sun et al. 2024, with the backward pass of LayerNorm by hand: x + LN(W x), with a trained initial W."""
    cell, shape = Cell.from_loss(inner.l2, inner.normalised, learned_start=True), Shape(1, 6, 1, 4, 4)
    x, params = sample_inputs(cell, shape), sample_params(cell, shape)
    y, _ = scan(cell, x, params=params, backend="reference")
    q, k, v, beta = (leaf[0, :, 0].numpy() for leaf in x)

    def standardised(z):
        deviation = np.sqrt(z.var() + 1e-5)
        return (z - z.mean()) / deviation, deviation

    W, want = params.W[0].numpy().copy(), []
    for t in range(shape.T):
        z, deviation = standardised(W @ k[t])
        slope = k[t] + z - v[t]
        slope = (slope - slope.mean() - z * (slope * z).mean()) / deviation
        W = W - beta[t] * np.outer(slope, k[t])
        want.append(q[t] + standardised(W @ q[t])[0])
    assert error(y[0, :, 0], torch.tensor(np.array(want))) < EXACT


DEEP = Cell.from_loss(inner.l2, inner.mlp(2), inner.scalar_decay, inner.momentum, learned_start=True)


def test_two_layers_with_momentum_equal_training_by_autograd():
    x, params = sample_inputs(DEEP, SHAPE), sample_params(DEEP, SHAPE)
    y, _ = scan(DEEP, x, params=params, backend="reference")
    weights = [leaf[0].clone() for leaf in params]
    momenta = [torch.zeros_like(W) for W in weights]
    for t in range(SHAPE.T):
        q, k, v, decay, momentum, beta = (leaf[0, t, 0] for leaf in x)
        up, down = weights = [(decay * W).requires_grad_() for W in weights]
        loss = (down @ gelu(up @ k) - v).square().sum() / 2
        slopes = torch.autograd.grad(loss, weights)
        momenta = [momentum * last - beta * slope for last, slope in zip(momenta, slopes, strict=True)]
        up, down = weights = [(W + by).detach() for W, by in zip(weights, momenta, strict=True)]
        assert error(y[0, t, 0], down @ gelu(up @ q)) < EXACT


def test_cell_from_a_loss_compiles_with_its_gradients():
    arguments = scan_checks.arguments(DEEP, scan_checks.BRIEF)
    got, want = (scan_checks.results_and_gradients(DEEP, backend, arguments) for backend in ("compiled", "reference"))
    scan_checks.assert_close(got, want, torch.float64)


def test_equal_parts_give_the_same_cell_also_after_pickling():
    cell = Cell.from_loss(inner.huber(2.0), retention=inner.scalar_decay)
    assert cell is Cell.from_loss(inner.huber(2.0), retention=inner.scalar_decay)
    assert pickle.loads(pickle.dumps(cell)) is cell


def test_layer_of_a_cell_from_a_loss():
    layer = make_layer(
        Cell.from_loss(inner.l2, inner.mlp(2), learned_start=True, steps=2), 8, num_heads=2, backend="reference"
    )
    layer(torch.randn(2, 5, 8))[0].sum().backward()
    assert all(p.grad.isfinite().all() for p in layer.parameters())


def rateless(gradient: torch.Tensor, beta: Decay) -> torch.Tensor:
    return -beta * gradient


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Cell.from_loss(lambda y, v: (y - v).square()), r"loss must be a scalar, got \[3\]. Sum it"),
        (lambda: Cell.from_loss(lambda y, v: 1.0), "loss must be a scalar, got float"),
        (lambda: Cell.from_loss(lambda y, v, w: w.sum()), "loss must be annotated in all its inputs.*Annotate w"),
        (lambda: Cell.from_loss("l2"), "loss must be a function, got 'l2'"),
        (lambda: Cell.from_loss(inner.l2, optimiser=rateless), "optimiser must be a function that takes a rate"),
        (lambda: Cell.from_loss(inner.l2, optimiser=lambda g, beta: -g), "optimiser must be annotated.*Annotate beta"),
        (lambda: Cell.from_loss(inner.l2, lambda W, k: W @ k), "memory must be annotated with its matrices"),
        (lambda: Cell.from_loss(inner.l2, steps=0), "steps must be a whole number of at least 1, got 0"),
    ],
)
def test_invalid_losses_give_an_error_of_one_line(make, message):
    with pytest.raises(InputError, match=message):
        make()
