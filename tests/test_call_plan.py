"""Plans of scan calls: calls with one signature share a plan, and other calls do not."""

import sys
from pathlib import Path
from typing import NamedTuple

import pytest
import torch

import fastweights
from fastweights import Cell, dispatch, scan
from fastweights.call.plan import plan_of
from fastweights.call.tensors import Tensors
from fastweights.layers import DeltaNet
from fastweights.signature import Key, Matrix, Value
from fastweights.testing.samples import Shape, sample_inputs, sample_params, sample_state

SHAPE = Shape(2, 3, 2, 4, 5)
ROOT = str(Path(fastweights.__file__).parent)


def tensors(cell: Cell, shape: Shape = SHAPE, seed: int = 0) -> Tensors:
    """A call with a state, resets and, for cells with slow weights, these."""
    torch.manual_seed(seed)
    inputs, state, params = (
        sample(cell, shape, torch.float32) for sample in (sample_inputs, sample_state, sample_params)
    )
    return Tensors(inputs, state, params, torch.rand(shape.B, shape.T) < 0.5)


@pytest.mark.parametrize("name", Cell.names())
def test_calls_of_one_signature_share_a_plan(name):
    cell = Cell.from_name(name)
    first, second = (plan_of(cell, tensors(cell, seed=seed), None) for seed in (0, 1))
    assert first is second


CHANGES = {
    "batch": lambda cell, t: tensors(cell, Shape(3, 3, 2, 4, 5)),
    "steps": lambda cell, t: tensors(cell, Shape(2, 4, 2, 4, 5)),
    "num_heads": lambda cell, t: tensors(cell, Shape(2, 3, 1, 4, 5)),
    "sizes": lambda cell, t: tensors(cell, Shape(2, 3, 2, 4, 6)),
    "dtype": lambda cell, t: t.map(torch.Tensor.double),
    "dtype of the inputs": lambda cell, t: t._replace(inputs=type(t.inputs)(*(x.bfloat16() for x in t.inputs))),
    "device": lambda cell, t: t.map(lambda x: x.to("meta"))._replace(reset=t.reset.to("meta")),
    "gradients of the inputs": lambda cell, t: t._replace(
        inputs=type(t.inputs)(*(x.clone().requires_grad_() for x in t.inputs))
    ),
    "gradients of the state": lambda cell, t: t._replace(
        state=type(t.state)(*(x.clone().requires_grad_() for x in t.state))
    ),
    "no state": lambda cell, t: t._replace(state=None),
    "no reset": lambda cell, t: t._replace(reset=None),
    "lengths": lambda cell, t: t._replace(lengths=torch.tensor([3, 1])),
    "initial_state": lambda cell, t: t._replace(initial_state=type(t.state)(*(x[0] for x in t.state))),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("name", ["delta", "delta-rnn", "mlstm"])
def test_different_signature_has_a_different_plan(name, change):
    cell = Cell.from_name(name)
    arguments = tensors(cell)
    plan, other = plan_of(cell, arguments, None), plan_of(cell, CHANGES[change](cell, arguments), None)
    assert plan is not other
    assert plan_of(cell, CHANGES[change](cell, arguments), None) is other


def test_plan_depends_on_gradient_mode_and_output_of_the_state():
    cell = Cell.from_name("delta")
    arguments = tensors(cell).map(lambda x: x.requires_grad_())
    plan = plan_of(cell, arguments, None)
    with torch.no_grad():
        without = plan_of(cell, arguments, None)
        assert not without.wants_gradients
        assert plan_of(cell, arguments, arguments.state) is not without
    assert plan.wants_gradients


def test_calls_under_forward_mode_differentiation_share_no_plan():
    cell = Cell.from_name("delta")
    arguments = tensors(cell)
    with torch.autograd.forward_ad.dual_level():
        assert plan_of(cell, arguments, None) is not plan_of(cell, arguments, None)


@pytest.mark.parametrize("backend", ["auto", *dispatch.MODULES])
@pytest.mark.parametrize("wants_gradients", [False, True])
def test_costs_and_fast_paths_are_computed_once_per_signature(monkeypatch, backend, wants_gradients):
    cell = Cell.from_function(new_step())
    arguments = tensors(cell).map(lambda x: x.requires_grad_(wants_gradients))
    calls = []
    for name, module in dispatch.MODULES.items():
        for function in ("cost", "fast_path"):
            original = getattr(module, function)

            def count(call, key=(name, function), original=original):
                calls.append(key)
                return original(call)

            monkeypatch.setattr(module, function, count)
    for _ in range(3):
        scan(cell, *arguments, backend=backend)
    assert len(calls) == len(set(calls))


class Memory(NamedTuple):
    W: Matrix


class Inputs(NamedTuple):
    q: Key
    k: Key
    v: Value


def new_step():
    """A new step without a plan."""

    def step(state: Memory, x: Inputs) -> tuple[Memory, Value]:
        W = state.W + torch.outer(x.v, x.k)
        return Memory(W), W @ x.q

    return step


FACTOR = 1.0


def decayed(state: Memory, x: Inputs) -> tuple[Memory, Value]:
    """FACTOR W + v k^T."""
    W = FACTOR * state.W + torch.outer(x.v, x.k)
    return Memory(W), W @ x.q


def test_change_of_a_global_between_training_steps_takes_effect(monkeypatch):
    cell = Cell.from_function(decayed)
    arguments = tensors(cell).map(lambda x: x.requires_grad_())
    for factor in (1.0, 0.5, 1.0):
        monkeypatch.setitem(globals(), "FACTOR", factor)
        for _ in range(2):
            got, want = (scan(cell, *arguments, backend=backend)[0] for backend in ("auto", "reference"))
            torch.testing.assert_close(got, want)


@pytest.mark.parametrize("T", [1, 3])
def test_captured_parameter_has_a_gradient(T):
    weight = torch.nn.Parameter(torch.ones(4))

    def step(state: Memory, x: Inputs) -> tuple[Memory, Value]:
        W = state.W + torch.outer(x.v, weight * x.k)
        return Memory(W), W @ x.q

    cell = Cell.from_function(step)
    arguments = tensors(cell, Shape(1, T, 1, 4, 5))
    gradients = [
        torch.autograd.grad(scan(cell, *arguments, backend=backend)[0].sum(), weight)
        for backend in ("auto", "reference")
    ]
    torch.testing.assert_close(*gradients)


def test_repeated_training_step_has_few_python_frames():
    layer, x = DeltaNet(16, 1), torch.randn(1, 2, 16)
    frames = 0

    def count_frame(frame, event, arg):
        nonlocal frames
        frames += event == "call" and frame.f_code.co_filename.startswith(ROOT)

    for _ in range(3):
        layer(x)[0].sum().backward()
    before = sys.getprofile()
    sys.setprofile(count_frame)
    try:
        layer(x)[0].sum().backward()
    finally:
        sys.setprofile(before)
    assert 0 < frames <= 90
