"""Operations inside of cells: what compiles means what it means in PyTorch, and what does not is refused in a line."""

from collections.abc import Callable, Sequence
from typing import Annotated, Any, NamedTuple

import pytest
import torch
from torch import Tensor

from fastweights import Cell, InputError, explain, scan
from fastweights.compiler.frontend.lower import lower
from fastweights.compiler.frontend.trace import trace
from fastweights.compiler.ir.functions import FUNCTIONS
from fastweights.compiler.ir.nodes import ConstantTensor, behind
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
    """Scales what is read by all the functions."""

    def step(state: State, x: Inputs) -> tuple[State, Value]:
        W = 0.5 * state.W + torch.outer(x.v, x.k)
        return State(W), W @ x.k * sum(folded(f(x.v, W)) for f in functions)

    return Cell.from_function(step)


def twice(functions: Sequence[Callable[[Tensor, Tensor], Any]]) -> Cell:
    """Learns: a step down the gradient of all the functions."""

    def loss(v: Tensor, W: Tensor) -> Tensor:
        return sum(folded(f(v, W)) for f in functions)

    def step(state: State, x: Inputs) -> tuple[State, Value]:
        W = 0.5 * state.W + torch.outer(x.v, x.k)
        d_v, d_W = torch.func.grad(loss, (0, 1))(x.v, W)
        return State(W - 0.1 * d_W), W @ x.k * folded(d_v)

    return Cell.from_function(step)


def off(cell: Cell) -> float:
    """How far the lowered step and its gradient are from autograd."""
    record_ops(cell, SIZES, torch.float64)
    draw = torch.Generator().manual_seed(1)
    W, k, v, *back = (torch.randn(s, generator=draw, dtype=torch.float64) for s in ((3, 4), 4, 3, (3, 4), 3))
    records = [State(W), Inputs(k, v)]
    pairs = zip(interpreted(cell, SIZES, records, back), expected(cell, records, back), strict=True)
    return max(error(got, want) for got, want in pairs)


@pytest.mark.parametrize("make", [once, twice], ids=["values and gradients", "gradients inside"])
@pytest.mark.parametrize("family", COMPILED)
def test_operations_mean_what_they_mean_in_pytorch(family, make):
    functions = {line: operation(line) for line in lines(family)}
    bound = tolerance(torch.float64).gradient
    if off(make(list(functions.values()))) > bound:
        wrong = [line for line, f in functions.items() if off(make([f])) > bound]
        pytest.fail(f"not as in PyTorch: {wrong}")


@pytest.mark.parametrize("line", ONCE)
def test_operations_of_one_derivative_mean_what_they_mean_in_pytorch(line):
    assert off(once([operation(line)])) <= tolerance(torch.float64).gradient


@pytest.mark.parametrize("line", REFUSED)
def test_what_does_not_compile_is_refused_and_runs_all_the_same(line):
    cell = once([operation(line)])
    inputs = sample_inputs(cell, SHAPE)
    with pytest.raises(InputError, match=REFUSED[line]) as told:
        scan(cell, inputs, backend="compiled")
    assert "\n" not in str(told.value)
    assert "instead" in str(told.value)
    assert explain(cell, inputs).chosen == "reference"


EDGES = (0.0, -0.0, 1e-30, -1e-4, 0.3, -0.4, 0.5, 1.0, -1.0, 1.5, -2.5, 30.0, -30.0, 1e10, -1e10)
EXTREMES = (*EDGES, float("inf"), float("-inf"), float("nan"))


class Two(NamedTuple):
    x: Value
    y: Value


class Kept(NamedTuple):
    h: Output


def arguments_of(name: str, x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
    """As many as a function takes, of the kind that it takes."""
    if name == "where":
        return x > 0, x, y
    if name.startswith("logical_"):
        x, y = x > 0, y > 0
    return (x, y)[: FUNCTIONS[name].arity]


def every_function(state: Kept, x: Two) -> tuple[Kept, Annotated[Tensor, TensorSpec(f"{len(FUNCTIONS)} V", "value")]]:
    """The whole vocabulary."""
    results = [f.meaning(*arguments_of(name, x.x, x.y)) for name, f in FUNCTIONS.items()]
    return Kept(state.h), torch.stack([r.to(x.x.dtype) for r in results])


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_every_function_of_the_vocabulary_at_the_edges(dtype):
    cell = Cell.from_function(every_function)
    pairs = torch.cartesian_prod(*[torch.tensor(EXTREMES, dtype=dtype)] * 2)
    inputs = Two(*pairs.T.reshape(2, 1, 1, 1, -1))
    got, want = (scan(cell, inputs, backend=backend)[0][0, 0, 0] for backend in ("compiled", "reference"))
    for name, mine, theirs in zip(FUNCTIONS, got, want, strict=True):
        where = f"{name} at x, y: got, not"
        close = torch.isclose(mine, theirs, rtol=16 * torch.finfo(dtype).eps, atol=1e-44, equal_nan=True)
        assert close.all(), f"{where} {torch.stack([*pairs.T, mine, theirs], 1)[~close][:5].tolist()}"


def test_kernels_put_numbers_where_they_belong():
    """Indices, diagonals and what is written into, of a matrix wider and one higher than a vector of the CPU."""
    cell = once([operation(line) for line in (*lines("places"), "W.diag()", "W.cumsum(1)", "W.max(1).values")])
    for shape in (SHAPE, Shape(1, 2, 1, 19, 3)):
        given = scan_checks.arguments(cell, shape)
        got, want = (scan_checks.results_and_gradients(cell, backend, given) for backend in ("compiled", "reference"))
        scan_checks.assert_close(got, want, torch.float64)


@pytest.mark.parametrize("number", [0.1, 0.3, 0.7])
def test_what_is_equal_does_not_deviate(number):
    """Not even by a rounding: the deviation of the least noise has a gradient as large as any."""
    cell = once([operation(line) for line in ("W.std(1)", "W.std(unbiased=False)", "W.var(0)")])
    for shape in (SHAPE, Shape(1, 1, 1, 7, 5)):
        given = scan_checks.arguments(cell, shape)
        equal = State(torch.full_like(given.state.W, number))
        given = given._replace(state=equal, inputs=given.inputs._replace(k=0 * given.inputs.k))
        got, want = (scan_checks.results_and_gradients(cell, backend, given) for backend in ("compiled", "reference"))
        scan_checks.assert_close(got, want, torch.float64)


class Recalled(NamedTuple):
    k: Key
    v: Value
    M: Annotated[Tensor, TensorSpec("V K", "value")]


def recalled(function: Callable[[Tensor, Tensor], Any]) -> Cell:
    """Scales what is read by a function of the inputs, so that the state is affine in itself."""

    def step(state: State, x: Recalled) -> tuple[State, Value]:
        W = state.W + torch.outer(x.v, x.k)
        return State(W), W @ x.k * folded(function(x.v, x.M))

    return Cell.from_function(step)


KINKS = (0.0, 1.0, -0.2, 1000.0, -1000.0)
"""Numbers where functions have kinks, where all are equal, and where exponentials overflow."""
UNDECIDED = ("W.max()",)
"""Of equal numbers PyTorch's gradient goes to all or, under `torch.vmap`, to the first."""
BOUND = 1e-7
"""Gradients that are wrong are off by more; numbers of 1000 make some ill-conditioned."""


# PyTorch's, of operations that vmap maps by a loop: the reference runs them.
@pytest.mark.filterwarnings("ignore:There is a performance drop")
@pytest.mark.parametrize("family", COMPILED)
def test_chunks_have_the_gradients_of_pytorch_at_kinks_too(family):
    """Every operation that compiles, or a refusal in a line; each member of a batch is at a kink of its own."""
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


def test_a_step_that_takes_a_tensor_out_of_the_gradient_is_refused_in_chunks():
    """Nothing in a graph of the values says so."""

    def without(v: Tensor, W: Tensor) -> Tensor:
        with torch.no_grad():
            return v.sigmoid()

    for function in (operation("v.detach() * v"), operation("v * v.amax().detach()"), without):
        cell = recalled(function)
        a = scan_checks.arguments(cell, SHAPE)
        with pytest.raises(InputError, match="a tensor is taken out of the gradient, in "):
            scan_checks.run(cell, "chunkwise", a)
        got, want = (scan_checks.results_and_gradients(cell, backend, a) for backend in ("auto", "reference"))
        scan_checks.assert_close(got, want, torch.float64)


def test_every_function_has_an_operation():
    """A vocabulary without words that nobody can say."""
    assert not {name for name in FUNCTIONS if name not in OPERATIONS} - {"identity"}


def test_the_same_operations_have_the_same_code():
    """Also where PyTorch begins with memory that nobody has filled."""
    cell = once([operation("F.pad(v[None], (1, 1), mode='circular')")])
    tables = [
        sorted(
            d.numbers for d in behind(lower(trace(cell, SIZES, torch.float64)).results) if isinstance(d, ConstantTensor)
        )
        for _ in range(2)
    ]
    assert tables[0] == tables[1]
