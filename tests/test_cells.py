"""Every cell in the folders satisfies every guarantee on every backend."""

from functools import partial
from typing import Annotated, NamedTuple

import pytest
import torch

from fastweights import Cell, InputError, scan
from fastweights.backends.chunkwise import chunks as _chunks
from fastweights.compiler.affine.form import AffineForm
from fastweights.compiler.specialise.specialisations import affine_of
from fastweights.registry import BACKENDS, RULES, describe
from fastweights.signature import Key, Matrix, Output, TensorSpec, Value
from fastweights.testing import backends_of, checks_in, scan_checks
from fastweights.testing.samples import OWN
from tiers import OF_SHAPES, OF_TRACERS, QUICK, first_of, kinds, shapes_by_tier, slow_unless

CELLS = {name: Cell.from_name(name) for name in Cell.names()}


def backends_for(cell):
    """The backends of a cell, without a build of kernels: every process that collects these tests calls this."""
    sizes = tuple({**OWN, "K": 5, "V": 4, "R": 4}.items())
    in_chunks = isinstance(affine_of(cell.key, sizes, torch.float64), AffineForm)
    return [name for name in BACKENDS.names() if name != "chunkwise" or in_chunks]


RUNS_ON = {name: backends_for(cell) for name, cell in CELLS.items()}
TRACED = {
    backend: first_of({name: kinds(CELLS[name]) for name, backends in RUNS_ON.items() if backend in backends})
    for backend in BACKENDS.names()
}
"""The cells whose tracing `make test` checks on a backend: all for the compiled backend, else one per kind."""
TRACED["compiled"] = [*CELLS]


def cases():
    """Every cell on every supported backend, with every check, in tiers."""
    for name, backends in RUNS_ON.items():
        for backend in backends:
            for kind, check in checks_in(scan_checks).items():
                yield from tiered(name, backend, kind, check)


def tiered(name, backend, kind, check):
    """The case of a check for `make test`, and the further case for `make test-all`."""
    case, marks = f"{name}-{backend}-{kind}", slow_unless(kind not in OF_TRACERS or name in TRACED[backend])
    if name in RULES.names() and backend == "compiled" and kind in QUICK:
        marks.append(pytest.mark.quick)
    shapes, more_shapes = shapes_by_tier(name, OF_SHAPES[kind]) if kind in OF_SHAPES else ([], [])
    yield pytest.param(CELLS[name], backend, partial(check, shapes=shapes) if shapes else check, id=case, marks=marks)
    if more_shapes:
        more = partial(check, shapes=more_shapes)
        yield pytest.param(CELLS[name], backend, more, id=f"{case}-other-shapes", marks=pytest.mark.slow)


@pytest.mark.parametrize(("cell", "backend", "check"), [*cases()])
def test_guarantee(cell, backend, check):
    check(cell, backend)


@pytest.mark.parametrize("cell", CELLS.values(), ids=CELLS)
def test_backends_run_the_expected_cells(cell):
    assert backends_of(cell) == RUNS_ON[cell.name]


@pytest.mark.parametrize("cell", CELLS.values(), ids=CELLS)
def test_docstring_has_a_summary_a_formula_a_source_and_abilities(cell):
    described = describe(cell.summary)
    assert described.summary.endswith(".")
    assert any(sign in described.formula for sign in ("<-", "=")), "no formula, indented, after the first line"
    assert described.source, "no paragraph 'Source:'"
    assert described.abilities, "no line 'Can:' with the abilities of fastweights.registry"


@pytest.mark.parametrize("name", RULES.names())
def test_rule_is_differentiable_twice(name):
    """The reference is plain PyTorch, so it has derivatives of any order."""
    cell = Cell.from_name(name)
    a = scan_checks.arguments(cell, scan_checks.Shape(1, 3, 1, 2, 3))._replace(reset=None)
    inputs = [x.detach().requires_grad_() for x in a.inputs]
    assert torch.autograd.gradgradcheck(
        lambda *x: scan_checks.run(cell, "reference", a._replace(inputs=cell.Inputs(*x)))[0], inputs
    )


def test_function_without_annotations_is_rejected():
    with pytest.raises(InputError, match="annotated with axes and roles"):
        Cell.from_function(lambda state, x: (state, x))


class State(NamedTuple):
    W: Matrix


class RecurrentState(NamedTuple):
    W: Matrix
    y: Output


class Inputs(NamedTuple):
    q: Key
    v: Value


def my_cell(state: State, x: Inputs) -> tuple[State, Value]:
    """W <- tanh(W + v q^T), y = W q."""
    W = torch.tanh(state.W + torch.outer(x.v, x.q))
    return State(W), W @ x.q


def test_user_defined_cell_satisfies_the_guarantees():
    cell = Cell.from_function(my_cell)
    assert backends_of(cell) == ["compiled", "reference"]
    scan_checks.check_whole_equals_split(cell, "reference")
    with pytest.raises(InputError, match="is not affine in its state: W is passed through tanh, in test_cells"):
        scan_checks.run(cell, "chunkwise", scan_checks.arguments(cell, scan_checks.ODD))


class Params(NamedTuple):
    R: Annotated[torch.Tensor, TensorSpec("K V", "weight")]


def my_recurrent_cell(state: RecurrentState, x: Inputs, params: Params) -> tuple[RecurrentState, Value]:
    """W <- (W + v q^T) / 2, y = W softmax(q + R tanh(y)): slow weights inside the step, one matrix per head."""
    W = (state.W + torch.outer(x.v, x.q)) / 2
    y = W @ (x.q + params.R @ state.y.tanh()).softmax(-1)
    return RecurrentState(W, y), y


@pytest.mark.parametrize("check", checks_in(scan_checks).values(), ids=checks_in(scan_checks))
@pytest.mark.parametrize("backend", ["compiled", "reference"])
def test_user_defined_cell_with_slow_weights_satisfies_every_guarantee(check, backend):
    check(Cell.from_function(my_recurrent_cell), backend)


@pytest.mark.parametrize("name", ["delta", "gated-delta", "sum", "linear-attention", "gated-oja"])
def test_chunkwise_in_blocks_equals_the_reference(name, monkeypatch):
    """A long sequence is computed block by block, and recomputed in the backward pass."""
    monkeypatch.setattr(_chunks, "BLOCK", 200)
    cell = Cell.from_name(name)
    a = scan_checks.arguments(cell, scan_checks.Shape(2, 75, 2, 5, 4))
    got, want = (scan_checks.results_and_gradients(cell, backend, a) for backend in ("chunkwise", "reference"))
    scan_checks.assert_close(got, want, torch.float64)


def test_chunkwise_stores_one_state_per_chunk(monkeypatch):
    """A sequence of twice the length stores twice the states of chunks of 32 steps, and nothing else but the inputs."""
    monkeypatch.setattr(_chunks, "BLOCK", 1000)
    cell = Cell.from_name("delta")
    for T in (256, 512):
        shape = scan_checks.Shape(1, T, 2, 64, 64)
        inputs = [x.float().requires_grad_() for x in scan_checks.sample_inputs(cell, shape)]
        input_storages = {x.untyped_storage().data_ptr() for x in inputs}
        saved = {}

        def record_storage(tensor, input_storages=input_storages, saved=saved):
            storage = tensor.untyped_storage()
            if storage.data_ptr() not in input_storages:
                saved[storage.data_ptr()] = storage.nbytes()
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(record_storage, lambda tensor: tensor):
            y, _ = scan(cell, cell.Inputs(*inputs), backend="chunkwise")
        assert sum(saved.values()) == (T // 32) * shape.H * shape.K * shape.V * 4
        del y
