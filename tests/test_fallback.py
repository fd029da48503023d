"""Cells that neither compile nor run under vmap run one head at a time."""

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor
from torch.nn.functional import dropout
from torch.utils.checkpoint import checkpoint

from fastweights import Cell, InputError, explain, scan
from fastweights.backends import reference
from fastweights.signature import Key, Matrix, Rate, Value
from fastweights.testing import scan_checks
from fastweights.testing.samples import Shape, sample_inputs
from fastweights.testing.tolerance import error, tolerance

SHAPE = Shape(2, 3, 2, 4, 3)


class State(NamedTuple):
    W: Matrix


class Inputs(NamedTuple):
    k: Key
    v: Value
    beta: Rate


def cell_writing(f: Callable[[Tensor, Tensor], Tensor]) -> Cell:
    """W <- W / 2 + f(v, beta) k^T."""

    def step(state: State, x: Inputs) -> tuple[State, Value]:
        W = state.W / 2 + torch.outer(f(x.v, x.beta), x.k)
        return State(W), W @ x.k

    return Cell.from_function(step)


class OldFunction(torch.autograd.Function):
    """A custom gradient, in the style before `torch.func`."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return 2 * x

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return -gradient


ONE_BY_ONE = {
    "a branch on a value": lambda v, beta: v if beta > 0.5 else -v,
    "a loop over a value": lambda v, beta: sum([v] * int(4 * beta), v),
    "an item": lambda v, beta: v * v.sum().item(),
    "a list": lambda v, beta: v * v.tolist()[0],
    "an array": lambda v, beta: v * float(v.detach().numpy()[0]),
    "a shape that depends on a value": lambda v, beta: v * v[v > 0].sum(),
    "a comparison": lambda v, beta: v if torch.equal(v, v) else -v,
    "numbers that are repeated": lambda v, beta: v * v.repeat_interleave((4 * v.abs()).long() + 1).sum(),
    "a new tensor of numbers": lambda v, beta: v * torch.tensor([float(v.detach()[0])], dtype=v.dtype),
    "an old autograd.Function": lambda v, beta: OldFunction.apply(v),
}
AT_ONCE = {
    "a maximum so far": lambda v, beta: v.cummax(0).values,
    "an inverse": lambda v, beta: torch.linalg.inv(torch.eye(3, dtype=v.dtype) + torch.outer(v, v)) @ v,
    "an index that is computed": lambda v, beta: v * v.gather(0, v.argmax()[None] // 2),
    "order": lambda v, beta: v.sort().values,
}


def by_hand(cell: Cell, inputs: Any) -> list[Tensor]:
    """y and the last W, computed head by head."""
    rows = []
    for b in range(SHAPE.B):
        for h in range(SHAPE.H):
            state, outputs = State(torch.zeros(SHAPE.V, SHAPE.K, dtype=torch.float64)), []
            for t in range(SHAPE.T):
                state, y = cell.step(state, Inputs(*(x[b, t, h] for x in inputs)))
                outputs.append(y)
            rows.append((torch.stack(outputs), state.W))
    y, W = (torch.stack(part).unflatten(0, (SHAPE.B, SHAPE.H)) for part in zip(*rows, strict=True))
    return [y.transpose(1, 2), W]


@pytest.mark.parametrize("f", [*ONE_BY_ONE.values(), *AT_ONCE.values()], ids=[*ONE_BY_ONE, *AT_ONCE])
def test_step_runs_and_trains_without_a_kernel(f):
    cell = cell_writing(f)
    inputs = [x.requires_grad_() for x in sample_inputs(cell, SHAPE)]
    assert explain(cell, Inputs(*inputs)).chosen == "reference"
    y, state = scan(cell, Inputs(*inputs))
    outcomes = []
    for results in ([y, state.W], by_hand(cell, inputs)):
        loss = results[0].square().sum() + results[1].sum()
        outcomes.append([*results, *torch.autograd.grad(loss, inputs, materialize_grads=True)])
    for got, want in zip(*outcomes, strict=True):
        assert error(got, want) <= tolerance(torch.float64).gradient


def test_resets_and_carried_states_one_head_at_a_time():
    cell = cell_writing(ONE_BY_ONE["a branch on a value"])
    for check in (scan_checks.check_packed_equals_separate, scan_checks.check_whole_equals_split):
        check(cell, "reference")


def test_fallback_is_logged_once(caplog):
    reference._log_once.cache_clear()
    cell = cell_writing(ONE_BY_ONE["an item"])
    for _ in range(2):
        scan(cell, sample_inputs(cell, SHAPE), backend="reference")
    messages = [record.message for record in caplog.records]
    assert sum("one head after the other, which is slow" in message for message in messages) == 1


def test_error_of_the_step_is_raised_unchanged():
    calls = []

    def failing(v: Tensor, beta: Tensor) -> Tensor:
        calls.append(v)
        if len(calls) > 3:
            raise ZeroDivisionError("mine")
        return v

    cell = cell_writing(failing)
    with pytest.raises(ZeroDivisionError, match="mine"):
        scan(cell, sample_inputs(cell, SHAPE), backend="reference")


class UserError(Exception):
    """An exception that a step raises on purpose."""


@pytest.mark.parametrize("backend", ["auto", "compiled", "chunkwise", "reference"])
@pytest.mark.parametrize(
    "raised", [UserError, type("MyRuntimeError", (RuntimeError,), {}), UserWarning, KeyboardInterrupt]
)
def test_exception_of_a_step_is_raised_after_one_call(backend, raised):
    calls, exception = [], raised("mine")

    def failing(v: Tensor, beta: Tensor) -> Tensor:
        calls.append(v)
        raise exception

    cell = cell_writing(failing)
    with pytest.raises(raised) as error:
        scan(cell, sample_inputs(cell, SHAPE), backend=backend)
    assert error.value is exception
    assert len(calls) == 1


@pytest.mark.parametrize("raised", [UserError, torch.OutOfMemoryError, RuntimeError, UserWarning, KeyboardInterrupt])
def test_reference_runs_head_by_head_for_errors_of_vmap_only(raised):
    """The step fails after its inspection, when it runs for all heads at once."""
    inspections = []

    def failing(v: Tensor, beta: Tensor) -> Tensor:
        if torch._C._functorch.is_batchedtensor(v):
            inspections.append(v)
            raise raised("DefaultCPUAllocator: not enough memory: you tried to allocate memory")
        return v

    cell = cell_writing(failing)
    with pytest.raises(raised):
        scan(cell, sample_inputs(cell, SHAPE), backend="reference")
    assert len(inspections) == 1


def write_into_a_new_tensor(v: Tensor, beta: Tensor) -> Tensor:
    """A kernel supports this, `torch.vmap` does not."""
    return torch.zeros(len(v), dtype=v.dtype).add_(v)


@pytest.mark.parametrize("f", [*ONE_BY_ONE.values(), write_into_a_new_tensor])
def test_gradient_checkpointing(f):
    scan_checks.check_gradient_checkpointing(cell_writing(f), "reference")


@pytest.mark.parametrize("backend", ["auto", "reference"])
def test_gradient_checkpointing_of_a_captured_parameter(backend):
    """An inspection of the step must not count among the tensors of the recomputation."""
    weight = torch.nn.Parameter(torch.rand(3, dtype=torch.float64))
    cell = cell_writing(lambda v, beta: (weight * v).sin())
    inputs = sample_inputs(cell, SHAPE)

    def run(k: Tensor) -> Tensor:
        return scan(cell, inputs._replace(k=k), backend=backend)[0].square().sum()

    for _ in range(2):
        k = inputs.k.clone().requires_grad_()
        got = torch.autograd.grad(checkpoint(run, k, use_reentrant=False), (k, weight))
        for one, other in zip(got, torch.autograd.grad(run(k), (k, weight)), strict=True):
            assert error(one, other) <= tolerance(torch.float64).gradient


NOISE = {
    "like an argument": lambda v, beta: v + torch.randn_like(v),
    "like nothing": lambda v, beta: v + torch.rand(3, dtype=v.dtype),
    "dropout": lambda v, beta: dropout(v),
}


@pytest.mark.parametrize("f", NOISE.values(), ids=NOISE)
def test_random_numbers_differ_between_heads_and_follow_the_seed(f):
    cell = cell_writing(f)
    inputs = Inputs(*(torch.ones(x.shape, dtype=x.dtype) for x in sample_inputs(cell, Shape(3, 2, 3, 4, 3))))
    runs = []
    for seed in (0, 0, 1):
        torch.manual_seed(seed)
        runs.append(scan(cell, inputs)[0])
    assert torch.equal(runs[0], runs[1])
    assert not torch.equal(runs[0], runs[2])
    assert len({tuple(y.flatten().tolist()) for y in runs[0].transpose(1, 2).flatten(0, 1)}) > 3
    with pytest.raises(InputError, match="noise as one of the inputs"):
        scan(cell, inputs, backend="compiled")
