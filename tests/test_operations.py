"""Operations in cells: compiled operations equal those of PyTorch, and the others are refused in one line."""

from collections.abc import Callable, Sequence
from typing import Annotated, Any, NamedTuple

import pytest
import torch
from torch import Tensor

from fastweights import Cell, InputError, explain, scan
from fastweights.compiler.frontend.lower import lower
from fastweights.compiler.frontend.trace import trace
from fastweights.compiler.ir.functions import FUNCTIONS
from fastweights.compiler.ir.nodes import ConstantTensor, ancestors
from fastweights.compiler.operations import OPERATIONS
from fastweights.compiler.specialise.op_log import record_ops
from fastweights.signature import Key, Matrix, Output, TensorSpec, Value
from fastweights.testing import scan_checks
from fastweights.testing.samples import Shape, sample_inputs
from fastweights.testing.tolerance import error, tolerance
from operations import COMPILED, ONCE, REFUSED, expected, folded, interpreted, lines, operation

SIZES = {"K": 4, "V": 3}
SHAPE = Shape(2, 3, 1, 4, 3)


class State(NamedTuple):
    W: Matrix


class Inputs(NamedTuple):
    k: Key
    v: Value


def once(functions: Sequence[Callable[[Tensor, Tensor], Any]]) -> Cell:
    """Cell whose output is scaled by all functions."""

    def step(state: State, x: Inputs) -> tuple[State, Value]:
        W = 0.5 * state.W + torch.outer(x.v, x.k)
        return State(W), W @ x.k * sum(folded(f(x.v, W)) for f in functions)

    return Cell.from_function(step)


def twice(functions: Sequence[Callable[[Tensor, Tensor], Any]]) -> Cell:
    """Cell with a gradient step on the sum of all functions."""

    def loss(v: Tensor, W: Tensor) -> Tensor:
        return sum(folded(f(v, W)) for f in functions)

    def step(state: State, x: Inputs) -> tuple[State, Value]:
        W = 0.5 * state.W + torch.outer(x.v, x.k)
        d_v, d_W = torch.func.grad(loss, (0, 1))(x.v, W)
        return State(W - 0.1 * d_W), W @ x.k * folded(d_v)

    return Cell.from_function(step)


def off(cell: Cell) -> float:
    """Largest error of the lowered step and its gradient compared with autograd."""
    record_ops(cell, SIZES, torch.float64)
    draw = torch.Generator().manual_seed(1)
    W, k, v, *back = (torch.randn(s, generator=draw, dtype=torch.float64) for s in ((3, 4), 4, 3, (3, 4), 3))
    records = [State(W), Inputs(k, v)]
    pairs = zip(interpreted(cell, SIZES, records, back), expected(cell, records, back), strict=True)
    return max(error(got, want) for got, want in pairs)


@pytest.mark.parametrize("make", [once, twice], ids=["values and gradients", "gradients inside"])
@pytest.mark.parametrize("family", COMPILED)
def test_compiled_operations_equal_those_of_pytorch(family, make):
    functions = {line: operation(line) for line in lines(family)}
    bound = tolerance(torch.float64).gradient
    if off(make(list(functions.values()))) > bound:
        wrong = [line for line, f in functions.items() if off(make([f])) > bound]
        pytest.fail(f"not as in PyTorch: {wrong}")


@pytest.mark.parametrize("line", ONCE)
def test_operations_with_one_derivative_equal_those_of_pytorch(line):
    assert off(once([operation(line)])) <= tolerance(torch.float64).gradient


@pytest.mark.parametrize("line", REFUSED)
def test_unsupported_operations_are_refused_and_run_on_the_reference(line):
    cell = once([operation(line)])
    inputs = sample_inputs(cell, SHAPE)
    with pytest.raises(InputError, match=REFUSED[line]) as refusal:
        scan(cell, inputs, backend="compiled")
    assert "\n" not in str(refusal.value)
    assert "instead" in str(refusal.value)
    assert explain(cell, inputs).chosen == "reference"


EDGES = (0.0, -0.0, 1e-30, -1e-4, 0.3, -0.4, 0.5, 1.0, -1.0, 1.5, -2.5, 30.0, -30.0, 1e10, -1e10)
EXTREMES = (*EDGES, float("inf"), float("-inf"), float("nan"))


class Two(NamedTuple):
    x: Value
    y: Value


class Unchanged(NamedTuple):
    h: Output


def arguments_of(name: str, x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
    """Arguments of a function, with the number and types that it requires."""
    if name == "where":
        return x > 0, x, y
    if name.startswith("logical_"):
        x, y = x > 0, y > 0
    return (x, y)[: FUNCTIONS[name].arity]


def every_function(
    state: Unchanged, x: Two
) -> tuple[Unchanged, Annotated[Tensor, TensorSpec(f"{len(FUNCTIONS)} V", "value")]]:
    """Step with every supported function."""
    results = [f.meaning(*arguments_of(name, x.x, x.y)) for name, f in FUNCTIONS.items()]
    return Unchanged(state.h), torch.stack([r.to(x.x.dtype) for r in results])


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_every_function_equals_pytorch_at_extreme_values(dtype):
    cell = Cell.from_function(every_function)
    pairs = torch.cartesian_prod(*[torch.tensor(EXTREMES, dtype=dtype)] * 2)
    inputs = Two(*pairs.T.reshape(2, 1, 1, 1, -1))
    got, want = (scan(cell, inputs, backend=backend)[0][0, 0, 0] for backend in ("compiled", "reference"))
    for name, mine, theirs in zip(FUNCTIONS, got, want, strict=True):
        where = f"{name} at x, y: got, not"
        close = torch.isclose(mine, theirs, rtol=16 * torch.finfo(dtype).eps, atol=1e-44, equal_nan=True)
        assert close.all(), f"{where} {torch.stack([*pairs.T, mine, theirs], 1)[~close][:5].tolist()}"


def test_kernels_of_indexing_operations_equal_the_reference():
    """Indices, diagonals and scatters, for matrices narrower and wider than a vector register."""
    cell = once([operation(line) for line in (*lines("places"), "W.diag()", "W.cumsum(1)", "W.max(1).values")])
    for shape in (SHAPE, Shape(1, 2, 1, 19, 3)):
        arguments = scan_checks.arguments(cell, shape)
        got, want = (
            scan_checks.results_and_gradients(cell, backend, arguments) for backend in ("compiled", "reference")
        )
        scan_checks.assert_close(got, want, torch.float64)


@pytest.mark.parametrize("number", [0.1, 0.3, 0.7])
def test_the_deviation_of_equal_numbers_is_exactly_0(number):
    """Rounding errors would cause large gradients of the standard deviation."""
    cell = once([operation(line) for line in ("W.std(1)", "W.std(unbiased=False)", "W.var(0)")])
    for shape in (SHAPE, Shape(1, 1, 1, 7, 5)):
        arguments = scan_checks.arguments(cell, shape)
        equal = State(torch.full_like(arguments.state.W, number))
        arguments = arguments._replace(state=equal, inputs=arguments.inputs._replace(k=0 * arguments.inputs.k))
        got, want = (
            scan_checks.results_and_gradients(cell, backend, arguments) for backend in ("compiled", "reference")
        )
        scan_checks.assert_close(got, want, torch.float64)


class Recalled(NamedTuple):
    k: Key
    v: Value
    M: Annotated[Tensor, TensorSpec("V K", "value")]


def recalled(function: Callable[[Tensor, Tensor], Any]) -> Cell:
    """Cell whose output is scaled by a function of the inputs. Its state update is affine."""

    def step(state: State, x: Recalled) -> tuple[State, Value]:
        W = state.W + torch.outer(x.v, x.k)
        return State(W), W @ x.k * folded(function(x.v, x.M))

    return Cell.from_function(step)


KINKS = (0.0, 1.0, -0.2, 1000.0, -1000.0)
"""Values at kinks of functions, equal values, and values whose exponentials overflow."""
UNDECIDED = ("W.max()",)
"""PyTorch's gradient for equal numbers goes to all of them or, under `torch.vmap`, to the first."""
BOUND = 1e-7
"""Bound for gradients that are ill-conditioned at 1000. Errors of wrong gradients are larger."""


# PyTorch's warning for operations that vmap runs in a loop. The reference uses them.
@pytest.mark.filterwarnings("ignore:There is a performance drop")
@pytest.mark.parametrize("family", COMPILED)
def test_chunkwise_gradients_equal_those_of_pytorch_at_kinks(family):
    """Every supported operation is equal or refused. Each batch element is at a different kink."""
    shape, wrong, equal = Shape(len(KINKS) + 2, 1, 1, 4, 3), [], 0
    for line in [line for line in lines(family) if line not in UNDECIDED]:
        cell = recalled(operation(line))
        a = scan_checks.arguments(cell, shape)._replace(reset=None)
        for b, number in enumerate(KINKS):
            a.inputs.v[b], a.inputs.M[b] = number, number
        want = scan_checks.results_and_gradients(cell, "reference", a)
        try:
            got = scan_checks.results_and_gradients(cell, "chunkwise", a)
        except InputError:
            continue
        pairs = [(got[n][b], want[n][b]) for n in want for b in range(shape.B) if want[n][b].isfinite().all()]
        off = max(error(mine, theirs, least=1e-3) for mine, theirs in pairs)
        equal += off <= BOUND
        wrong += [f"{line}: {off:.1e}"] if off > BOUND else []
    assert not wrong
    assert equal


def test_detached_tensors_are_refused_by_the_chunkwise_backend():
    """The graph of the values does not contain `detach` or `no_grad`."""

    def without(v: Tensor, W: Tensor) -> Tensor:
        with torch.no_grad():
            return v.sigmoid()

    for function in (operation("v.detach() * v"), operation("v * v.amax().detach()"), without):
        cell = recalled(function)
        a = scan_checks.arguments(cell, SHAPE)
        with pytest.raises(InputError, match="a tensor is detached from the gradient, in "):
            scan_checks.run(cell, "chunkwise", a)
        got, want = (scan_checks.results_and_gradients(cell, backend, a) for backend in ("auto", "reference"))
        scan_checks.assert_close(got, want, torch.float64)


def test_every_function_has_an_operation():
    """Every supported function can be written as an operation of PyTorch."""
    assert not {name for name in FUNCTIONS if name not in OPERATIONS} - {"identity"}


def test_equal_operations_have_equal_code():
    """Includes operations that PyTorch starts with uninitialised memory."""
    cell = once([operation("F.pad(v[None], (1, 1), mode='circular')")])
    tables = [
        sorted(
            d.numbers
            for d in ancestors(lower(trace(cell, SIZES, torch.float64)).results)
            if isinstance(d, ConstantTensor)
        )
        for _ in range(2)
    ]
    assert tables[0] == tables[1]
