"""The passes of the compiler: each result is well formed and equals the cell."""

import itertools
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
import torch
from torch import Tensor

import programs as programs_of
from fastweights import Cell, compiler
from fastweights.cells.mesa import make_mesa
from fastweights.compiler.frontend.lower import lower
from fastweights.compiler.frontend.trace import Trace, trace
from fastweights.compiler.ir.functions import FUNCTIONS
from fastweights.compiler.ir.interpret import Interpreter, interpret
from fastweights.compiler.ir.nodes import (
    Apply,
    Assemble,
    Constant,
    ConstantTensor,
    Index,
    Input,
    Load,
    Map,
    Node,
    Reduce,
    Region,
    Reshape,
    Value,
    ancestors,
    identity,
    whole,
)
from fastweights.compiler.ir.passes import split
from fastweights.compiler.ir.show import show, show_step
from fastweights.compiler.ir.step import Step
from fastweights.compiler.ir.verify import verify, verify_passes, verify_step
from fastweights.compiler.op import sizes_of
from fastweights.compiler.pipeline import source
from fastweights.compiler.targets.cpp.layout_constraints import constraints
from fastweights.compiler.targets.cpp.lookahead import NextStepNodes
from fastweights.compiler.targets.cpp.outline import structure
from fastweights.compiler.targets.cpp.plan import plan
from fastweights.compiler.targets.cpp.schedule import Buffer, Nest, Program, Role, Statement
from fastweights.compiler.targets.cpp.show import show_program
from fastweights.compiler.targets.cpp.tiling import (
    ACCUMULATORS,
    AccumulatorStart,
    CppBlock,
    FinishLanes,
    FinishRows,
    Loop,
    Place,
    Registers,
    StoreRows,
    Tiling,
    spans,
    tile,
)
from fastweights.testing import scan_checks
from fastweights.testing.samples import Shape
from fastweights.testing.tolerance import tolerance
from operations import expected
from tiers import CORE, slow_unless

ROOT = Path(compiler.__file__).parent
pytestmark = pytest.mark.quick
SHAPE = Shape(B=1, T=3, H=1, K=5, V=4)
CELLS = Cell.names()


@cache
def traced(name: str) -> Trace:
    return trace(Cell.from_name(name), sizes(name), torch.float64)


@cache
def lowered(name: str) -> Step:
    return lower(traced(name))


def sizes(name: str) -> dict[str, int]:
    a = scan_checks.arguments(Cell.from_name(name), SHAPE)
    return sizes_of(Cell.from_name(name), [*a.inputs, *a.state, *(a.params or ())])


def one_step(name: str) -> tuple[list[Tensor], list[Tensor]]:
    """Arguments of a time step of one head (state, inputs, params, output gradients), and its results by autograd."""
    a = scan_checks.arguments(Cell.from_name(name), SHAPE)
    parts = [(a.state, (0, 0)), (a.inputs, (0, 0, 0)), (a.params or (), (0,))]
    records = [type(r)(*(x[place] for x in r)) for r, place in parts if r]
    back = [
        torch.randn_like(d) for d in (*records[0], torch.zeros(Cell.from_name(name).output.shape(sizes(name))).double())
    ]
    return [*(x for r in records for x in r), *back], expected(Cell.from_name(name), records, back)


def assert_equal(got: list[Tensor], want: list[Tensor]) -> None:
    for n, (mine, theirs) in enumerate(zip(got, want, strict=True)):
        off = (mine - theirs).norm() / theirs.norm().clamp(min=1e-3)
        assert off <= tolerance(torch.float64).gradient, f"result {n} is off by {off:.1e}"


@pytest.mark.parametrize("name", CELLS)
def test_traced_graph_computes_the_step_and_its_gradient(name):
    arguments, want = one_step(name)
    assert_equal(traced(name).graph(*arguments), want)


@pytest.mark.parametrize("name", CELLS)
def test_lowered_step_is_well_formed_and_equals_the_step(name):
    arguments, want = one_step(name)
    step = lowered(name)
    verify_step(step)
    interpreter = Interpreter(dict(zip(step.placeholders, arguments, strict=True)))
    assert_equal([interpreter.value(v) for v in step.results], want)


WIDE = Shape(B=1, T=1, H=1, K=320, V=288)
"""Sizes beyond every limit on what a loop may be unrolled to."""


@pytest.mark.parametrize("name", [pytest.param(name, marks=slow_unless(name in {*CORE, "mesa"})) for name in CELLS])
def test_a_cell_with_wide_states_can_be_lowered(name):
    """The step and its gradient become loops of any size, in code of limited length."""
    a = scan_checks.arguments(Cell.from_name(name), WIDE)
    wide = sizes_of(Cell.from_name(name), [*a.inputs, *a.state, *(a.params or ())])
    assert len(source(Cell.from_name(name), wide, torch.float32, "cpu")) < 500_000


@pytest.mark.parametrize("name", CELLS)
def test_split_passes_are_well_formed_and_equal_the_scan(name):
    cell, passes = Cell.from_name(name), split(lowered(name))
    verify_passes(passes)
    a = scan_checks.with_gradients(scan_checks.arguments(cell, SHAPE)._replace(reset=None))
    y, state = scan_checks.run(cell, "reference", a)
    back = [torch.randn_like(x) for x in (y, *state)]
    leaves = [*a.inputs, *a.state, *(a.params or ())]
    gradients = torch.autograd.grad([y, *state], leaves, back, materialize_grads=True)
    names = [f"in_{n}" for n in cell.slots["Inputs"]] + [f"state_{n}" for n in cell.slots["State"]]
    names += [f"param_{n}" for n in cell.slots.get("Params", {})]
    places = [(0, slice(None), 0) if n.startswith("in_") else (0, 0) if n.startswith("state_") else 0 for n in names]
    values = {n: x.detach()[place] for n, x, place in zip(names, leaves, places, strict=True)}
    values |= {
        "d_y": back[0][0, :, 0],
        **{f"d_state_{n}": x[0, 0] for n, x in zip(state._fields, back[1:], strict=True)},
    }
    got = interpret(passes, values, SHAPE.T)
    want = {f"state_{n}": x[0, 0] for n, x in zip(state._fields, state, strict=True)} | {"y": y[0, :, 0]}
    want |= {f"d_{n}": d[place] for n, d, place in zip(names, gradients, places, strict=True)}
    assert_equal([got[n] for n in want], [want[n].detach() for n in want])
    assert got.keys() == want.keys()


@pytest.mark.parametrize("name", CELLS)
def test_loop_nests_equal_the_passes(name):
    """Includes nodes computed in place, ahead of the next time step, or inside their reader."""
    passes = split(lowered(name))
    programs = plan(passes, lanes=8)
    params = {n: torch.rand(d.shape, dtype=torch.float64) for n, d in passes.params.items()}
    for kind, each in passes.by_name.items():
        memory, then = programs_of.sample(each, params)
        after = programs_of.step(getattr(programs, kind), memory, then)
        inputs = {**each.carried, **each.moving, **passes.params}
        interpreter = Interpreter({d: memory[n] for n, d in inputs.items()})
        want = {f"new {n}": interpreter.value(v) for n, v in each.new.items()}
        want |= {n: interpreter.value(v) for n, v in each.made.items()}
        want |= {n: memory[n] + interpreter.value(v) for n, v in each.added.items()}
        assert_equal([after[n] for n in want], [*want.values()])


def test_a_step_of_the_delta_rule_reads_its_matrix_once():
    for name in ("forward", "recompute"):
        program = getattr(plan(split(lowered("delta")), lanes=8), name).step
        matrices = [nest for nest in program.nests if len(nest.shape) > 1]
        assert len(matrices) == 1, name
    assert "next_state_W_read_0[i] = sum of" in show_program(plan(split(lowered("delta")), 8).forward.step)


def test_steps_of_an_inner_loop_share_one_function():
    """Three more steps of conjugate gradients add calls of the same functions."""
    texts = [source(Cell.from_function(make_mesa(steps)), {"K": 16, "V": 4}, torch.float64, "cpu") for steps in (9, 12)]
    functions, calls = (
        [Counter(re.findall(pattern, text, re.MULTILINE)) for text in texts]
        for pattern in (r"static void (\w+_nest_\d+)\(.*\{$", r"^    (\w+_nest_\d+)\(")
    )
    assert len(functions[0]) > 10
    assert functions[0] == functions[1]
    assert all(calls[1][name] - calls[0][name] == 3 for name in calls[0])
    # With eight time steps the system is well-conditioned. With three or twenty-four, twelve iterations amplify
    # rounding errors to 1e-11, also in the reference.
    cell, shape = Cell.from_function(make_mesa(12)), Shape(1, 8, 1, 16, 4)
    a = scan_checks.arguments(cell, shape)
    got, want = (scan_checks.results_and_gradients(cell, backend, a) for backend in ("compiled", "reference"))
    scan_checks.assert_close(got, want, torch.float64)


def test_nests_that_differ_in_their_buffers_share_a_structure():
    """The structure includes shapes, constants, and whether two operands are one buffer."""
    a, b, c, scaled = Input((4,)), Input((4,)), Input((4,)), Input((4,))
    buffers = {node: Buffer(f"x{n}", node.shape) for n, node in enumerate((a, b, c, scaled))}
    program = Program([], buffers, [])

    def key(first: Node, second: Node, factor: float = 2.0) -> object:
        product = Apply("mul", (Constant(factor), load(first, Index(0)), load(second, Index(0))))
        return structure(program, Nest((4,), [Statement(scaled, (4,), product, (Index(0),))]))

    assert key(a, b) == key(b, c) == key(c, a)
    assert len({key(a, b), key(a, a), key(a, scaled), key(a, b, 3.0)}) == 4


def test_reshaped_nodes_are_contiguous_and_compared_nodes_computed_once():
    flat, squared = Reshape((12,), W), Map((4,), product(load(k, Index(0)), load(k, Index(0))))
    highest = Reduce((), "max", 4, load(squared, Index(0)))
    layout = constraints([W, k, flat, squared, highest])
    assert layout == ({W}, {squared})
    later = Map((4,), load(k, Index(0)))
    assert layout.extended({squared: later}) == ({W}, {squared, later})


def test_nodes_of_the_next_state_move_to_the_next_step():
    new, read = Input((4,)), Map((4,), product(load(k, Index(0)), load(k, Index(0))))
    later = NextStepNodes({k: new})
    assert later.node(W) is W
    assert later.node(read) == later.node(read)
    assert later.node(read).expression == product(load(new, Index(0)), load(new, Index(0)))


def test_only_the_pipeline_traces_and_lowers():
    """No target imports the frontend or the pipeline."""
    for file in (ROOT / "targets").rglob("*.py"):
        imported = re.findall(r"^\s*(?:from|import) fastweights\.compiler\.(\w+)", file.read_text(), re.MULTILINE)
        assert not {"frontend", "pipeline"} & set(imported), file


def test_no_target_parses_names_of_buffers():
    """Names of buffers are for printing only."""
    prefixes = "|".join({"s_", "d_", *(role.value for role in Role if role.value)})
    for file in (ROOT / "targets").rglob("*.py"):
        parsed = re.findall(rf"(?:startswith|removeprefix|split)\(.*[\"'](?:{prefixes})[\"']", file.read_text())
        assert not parsed, file


def test_every_file_is_on_the_page_of_the_compiler_and_every_path_exists():
    page = (Path(__file__).parents[1] / "docs" / "contributing" / "compiler.md").read_text(encoding="utf-8")
    paths = set(re.findall(r"`([\w/]+(?:\.py|\.h|\.cpp|/))`", page.partition("\n## ")[0]))
    files = {str(file.relative_to(ROOT)) for file in ROOT.rglob("[a-z]*.py")}
    assert not {file for file in files if not {file, f"{file.rpartition('/')[0]}/"} & paths}
    assert not {path for path in paths if not (ROOT / path).exists() and not (ROOT.parents[2] / path).exists()}


def test_constant_factors_are_moved_out_of_sums():
    """The gradient of the delta rule reads W and its gradient, and creates no matrix but the new gradient."""
    step = lowered("delta")
    sums = [d for d in ancestors(step.results) if isinstance(d, Reduce)]
    matrices = [d for d in sums for read in d.operands() if read.is_matrix]
    assert {read for d in sums for read in d.operands() if read.is_matrix} == {
        *step.state.values(),
        *step.d_state.values(),
    }
    assert len(matrices) == 6, "W k, W q, W' d_y, dW k, dW' u, W' dW k"


def test_equal_expressions_are_one_definition():
    for name in CELLS:
        made = [d for d in ancestors(lowered(name).results) if isinstance(d, Map)]
        assert len({(d.shape, d.expression) for d in made}) == len(made), name


def test_small_tensors_are_saved_for_the_backward_pass():
    saved = split(lowered("delta-rnn")).recompute.made
    assert saved
    state = sum(d.size for d in lowered("delta-rnn").state.values())
    assert sum(v.expression.node.size for v in saved.values()) < state


@pytest.mark.parametrize("name", CELLS)
def test_printed_form_names_all_results(name):
    step = lowered(name)
    text = show_step(step)
    assert len(text.splitlines()) >= len(ancestors(step.results) - set(step.placeholders))
    passes = show(split(step))
    for result in ("new state_", "y", "kept_", "d_in_"):
        assert f"\n  {result}" in passes or result == "kept_"


def test_printed_form_is_readable():
    text = show_step(lowered("delta"))
    assert "t0[i < 4] = sum(j < 5) (in_k[j] * state_W[i, j])" in text
    assert "# delta.py" in text


W = Input((3, 4))
k = Input((4,))


def product(*factors: Load) -> Apply:
    return Apply("mul", factors)


def load(node: Node, *index: Index) -> Load:
    return Load(node, index)


MALFORMED = {
    "an input that is no placeholder": whole(Input((3,))),
    "one index an axis": Value((3,), load(W, Index(0))),
    "an index outside": Value((3,), load(k, Index(0, 1, 2))),
    "an axis that is not there": Value((3,), load(k, Index(1))),
    "an axis of one element": Value((1,), load(k, Index(0))),
    "an unknown function": Value((4,), Apply("softmax", (load(k, Index(0)),))),
    "add of 1": Value((4,), Apply("add", (load(k, Index(0)),))),
    "argument 0 of where": Value((4,), Apply("where", (load(k, Index(0)),) * 3)),
    "argument 1 of add": Value((), Apply("add", (Constant(1.0), Apply("eq", (Constant(1.0),) * 2)))),
    "a mask in the place of numbers": Value((), Apply("eq", (Constant(1.0), Constant(1.0)))),
    "as many numbers as elements": whole(ConstantTensor((3,), (1.0, 2.0))),
    "a reduction of one element": whole(Reduce((4,), "sum", 1, load(k, Index(0)))),
    "a reshape to another number": whole(Reshape((5,), k)),
    "an element that no region writes": whole(Assemble((4,), (Region((1,), (3,), load(k, Index(0))),))),
}


@pytest.mark.parametrize("complaint", MALFORMED)
def test_malformed_nodes_are_refused(complaint):
    with pytest.raises(AssertionError, match=complaint):
        verify([MALFORMED[complaint]], [W, k])


def test_gradients_have_the_shapes_of_their_tensors():
    step = lowered("delta")
    wrong = {**step.gradients, "inputs": {**step.gradients["inputs"], "k": step.y}}
    with pytest.raises(AssertionError, match="the gradient of k"):
        verify_step(replace(step, gradients=wrong))


def test_nodes_are_immutable():
    for node in (W, Map((4,), load(k, Index(0))), Reshape((12,), W)):
        with pytest.raises(AttributeError):
            node.shape = (1,)


def test_interpreter_supports_every_node_and_every_function():
    x = torch.randn(3, 4, dtype=torch.float64)
    values = {W: x, k: x[0]}
    rows = Reduce((3,), "sum", 4, product(load(W, Index(0), Index(1)), load(k, Index(1))))
    joined = Assemble((6,), (Region((0,), (3,), load(rows, Index(0))), Region((3,), (3,), load(k, Index(0, -1, 3)))))
    pairs = Reshape((2, 3), joined)
    table = ConstantTensor((2, 3), (1.0, 2.0, 3.0, 4.0, 5.0, 6.0))
    total = Map((2, 3), Apply("add", (whole(pairs).expression, whole(table).expression)))
    verify([whole(total)], values)
    want = torch.cat([x @ x[0], x[0].flip(0)[:3]]).reshape(2, 3) + torch.arange(1.0, 7.0).reshape(2, 3)
    torch.testing.assert_close(Interpreter(values).tensor(total), want)
    for name, function in FUNCTIONS.items():
        numbers = [Apply("gt", (load(k, Index(0)), Constant(0.0)))] * function.masks
        numbers += [Apply("abs", (load(k, Index(0)),))] * (function.arity - function.masks)
        assert Interpreter(values).evaluate(Apply(name, tuple(numbers)), identity_shape(k)).shape == (4,)


def identity_shape(node: Node) -> tuple[int, ...]:
    assert len(identity(node.shape)) == len(node.shape)
    return node.shape


SHAPES = [(1,), (7,), (64,), (3, 5), (5, 3), (17, 33), (8, 8), (64, 64), (9, 2), (4, 3, 7), (33, 4, 16)]
LANES = [2, 4, 8, 16]


def nest(shape: tuple[int, ...], reduced: tuple[int, ...]) -> Nest:
    """Nest with one elementwise statement and a sum over every axis in `reduced`."""
    sums = [Statement(Input(()), shape, Constant(1.0), (), "sum", axis) for axis in reduced]
    place = tuple(Index(axis) for axis in range(len(shape)))
    return Nest(shape, [Statement(Input(shape), shape, Constant(1.0), place), *sums])


def tilings(shape: tuple[int, ...]) -> Iterator[tuple[int, Tiling]]:
    """Pairs of a vectorised axis and a tiling of a shape, for reductions along any axes."""
    axes = range(len(shape))
    for reduced in [(), *((a,) for a in axes), tuple(axes), (0, 0, 0)]:
        for axis, lanes in itertools.product(axes, LANES):
            yield axis, tile(nest(shape, reduced), axis, lanes)


def walk(parts, at=()):
    """Pairs of a part and the loop indices that lead to it."""
    for part in parts:
        yield part, dict(at)
        if isinstance(part, Loop):
            for start in range(part.start, part.stop, part.step):
                yield from walk(part.body, (*at, (part.axis, start)))


@pytest.mark.parametrize("size", [1, 2, 3, 7, 8, 31, 64, 100])
@pytest.mark.parametrize("lanes", LANES)
def test_vectors_cover_an_axis_once_with_falling_widths(size, lanes):
    covered = [n for span in spans(size, lanes) for n in range(span.start, span.stop)]
    assert covered == list(range(size))
    widths = [span.width for span in spans(size, lanes)]
    assert widths == sorted(widths, reverse=True)


@pytest.mark.parametrize("shape", SHAPES)
def test_every_element_is_computed_once(shape):
    for axis, tiling in tilings(shape):
        assert sorted([*tiling.outer, axis, *([tiling.row] if tiling.row >= 0 else [])]) == list(range(len(shape)))
        visits = Counter[tuple[int, int]]()
        for part, at in walk(tiling.body):
            if isinstance(part, CppBlock):
                rows = range(at.get(tiling.row, 0), at.get(tiling.row, 0) + part.rows)
                columns = range(at[axis], at[axis] + part.vectors * part.width)
                visits.update(itertools.product(rows, columns))
        size = shape[tiling.row] if tiling.row >= 0 else 1
        assert visits == dict.fromkeys(itertools.product(range(size), range(shape[axis])), 1)


@pytest.mark.parametrize("shape", SHAPES)
def test_accumulators_are_started_before_and_finished_after_their_blocks(shape):
    for _, tiling in tilings(shape):
        live = set[Registers]()
        for part, _ in walk(tiling.body):
            match part:
                case AccumulatorStart(registers):
                    assert registers not in live
                    live.add(registers)
                case CppBlock(width, rows, vectors, row_accumulators, lane_accumulators):
                    assert not tiling.reductions(Place.ROWS) or any(
                        r.place is Place.ROWS
                        and (r.width, r.rows) == (width, row_accumulators)
                        and r.vectors >= vectors
                        for r in live
                    )
                    assert not tiling.reductions(Place.LANES) or any(
                        r.place is Place.LANES and (r.width, r.vectors) == (width, lane_accumulators) and r.rows >= rows
                        for r in live
                    )
                case FinishRows(registers) | FinishLanes(registers):
                    live.remove(registers)
                case StoreRows(widths):
                    assert len(widths) == len(set(widths))
        assert not live


@pytest.mark.parametrize("shape", SHAPES)
def test_accumulators_of_row_sums_fit_into_registers(shape):
    for _, tiling in tilings(shape):
        for part, _ in walk(tiling.body):
            if isinstance(part, AccumulatorStart) and part.registers.place is Place.ROWS:
                assert (
                    part.registers.rows * part.registers.vectors * len(tiling.reductions(Place.ROWS))
                    <= 2 * ACCUMULATORS
                )
