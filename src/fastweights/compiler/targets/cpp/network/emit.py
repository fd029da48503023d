"""Prints a network program as C++ that needs the C library only.

The function `network_step(p, team)` takes the addresses of all buffers but those in the scratch memory, which is the
last address, and the threads that share its work. It returns 0, or 1 if an index is outside of its table.
"""

from collections.abc import Callable, Hashable, Sequence
from pathlib import Path
from typing import NamedTuple

import torch

from fastweights.compiler.ir.network import (
    BufferRole,
    CellStep,
    Convert,
    Gather,
    Loops,
    MatrixProduct,
    NetworkBuffer,
    NetworkProgram,
    Operation,
    View,
)
from fastweights.compiler.ir.nodes import ConstantTensor, Node, ancestors, upstream, volume
from fastweights.compiler.ir.passes import Passes
from fastweights.compiler.targets.cell_spec import CellSpec
from fastweights.compiler.targets.cpp.layout import choose_layouts
from fastweights.compiler.targets.cpp.layout_constraints import constraints
from fastweights.compiler.targets.cpp.loops import CppWriter
from fastweights.compiler.targets.cpp.network.memory import Memory, place
from fastweights.compiler.targets.cpp.network.structure import structure
from fastweights.compiler.targets.cpp.one_step import declaration, is_in_place, step_arguments
from fastweights.compiler.targets.cpp.plan import StepPlan, plan_one_step
from fastweights.compiler.targets.cpp.prologue import EXPORTED, Functions, beginning, padded, tables
from fastweights.compiler.targets.cpp.schedule import Buffer as Place
from fastweights.compiler.targets.cpp.schedule import Output, schedule

RUNTIME = Path(__file__).with_name("runtime.h")
TYPES = {"real": "real", "int64": "int64_t", "bool": "bool", "uint8": "uint8_t"}
TYPES |= {"bfloat16": "fw::bfloat16", "int8": "int8_t"}
WORTH_SHARING = 1 << 14
"""Smallest number of elements of a matrix whose rows several threads share, or of the states of a cell in all time
steps. A barrier takes about a microsecond."""
UNIT = 16
"""Rows of a matrix that one thread computes together."""


class Surroundings(NamedTuple):
    """The code around a program.

    Args:
        threads: The file with the threads that share a step.
        linkage: The attribute of the function `network_step`.
    """

    threads: Path
    linkage: str


LIBRARY = Surroundings(Path(__file__).with_name("openmp.h"), EXPORTED)
PROGRAM = Surroundings(Path(__file__).with_name("team.h"), "static")


class Source(NamedTuple):
    """The text of a program.

    Args:
        head: The functions that all programs share.
        body: The functions of this program.
        shared: Elements of scratch memory of all threads together.
        private: Elements of scratch memory of each thread.
    """

    head: str
    body: str
    shared: int
    private: int

    @property
    def text(self) -> str:
        """The whole text."""
        return f"{self.head}\n{self.body}"


def source(
    program: NetworkProgram,
    dtype: torch.dtype,
    lanes: int,
    passes: Callable[[CellSpec], Passes],
    around: Surroundings,
) -> Source:
    """The C++ of a network program, for vectors of `lanes` numbers. `passes` compiles its cells."""
    return Emitter(program, dtype, lanes, passes, around).source()


class Emitter:
    """Prints the operations of a program. Operations with the same structure share a function."""

    def __init__(
        self,
        program: NetworkProgram,
        dtype: torch.dtype,
        lanes: int,
        passes: Callable[[CellSpec], Passes],
        around: Surroundings,
    ) -> None:
        self.program, self.dtype, self.lanes, self.passes, self.around = program, dtype, lanes, passes, around
        self.functions = Functions(dtype, lanes)
        self.loops: dict[Hashable, str] = {}
        self.cells: dict[Hashable, tuple[str, StepPlan]] = {}
        self.texts: list[str] = []
        self.memory: Memory = place(program)

    def source(self) -> Source:
        """The text."""
        calls = [self._operation(operation) for operation in self.program.operations]
        head = beginning(self.program.title, self.dtype)
        head += [self.around.threads.read_text(encoding="utf-8")]
        head += [f"#define FW_WIDTH {self.lanes * self.dtype.itemsize}", RUNTIME.read_text(encoding="utf-8")]
        body = [*self._part(calls), *self._step()]
        scratch = padded(self.functions.scratch)
        private = scratch + max([0, *map(self._apart, self.cells.values())])
        sizes = f"enum {{ CELL_SCRATCH = {scratch}, PRIVATE_SIZE = {private} }};"
        return Source("\n".join(head), "\n".join([sizes, *self.texts, *body, ""]), self.memory.size, private)

    def _part(self, calls: Sequence[tuple[bool, list[str]]]) -> list[str]:
        """The function that computes what one thread does in a step."""
        out = CppWriter(depth=0)
        out.open("\nstatic void network_part(void* const* p, fw::Worker worker)")
        out.lines += [f"    {self._declaration(b)}" for b in self.program.arguments]
        out.add(f"real* const scratch = (real*)p[{len(self.program.arguments)}];")
        out.add(f"real* const own = scratch + {self.memory.size} + worker.me * PRIVATE_SIZE;")
        out.add("(void)own;")
        was_shared = False
        for n, (is_shared, lines) in enumerate(calls):
            if n and (is_shared or was_shared):
                out.add("fw::barrier(worker);")
            if is_shared:
                out.lines += [f"    {line}" for line in lines]
            else:
                out.lines += ["    if (worker.me == 0) {", *(f"        {line}" for line in lines), "    }"]
            was_shared = is_shared
        out.close()
        return out.lines

    def _step(self) -> list[str]:
        """The function of a step, which checks all indices before any state changes."""
        gathers = [operation for operation in self.program.operations if isinstance(operation, Gather)]
        out = CppWriter(depth=0)
        out.open(f"\n{self.around.linkage} int network_step(void* const* p, fw::Team team)")
        out.lines += [f"    {self._declaration(b)}" for b in dict.fromkeys(g.index.buffer for g in gathers)]
        out.lines += [f"    {self._check(gather)}" for gather in gathers]
        out.add("fw::run(network_part, p, team);")
        out.add("return 0;")
        out.close()
        return out.lines

    def _declaration(self, buffer: NetworkBuffer) -> str:
        """The declaration of a variable with the address of an argument."""
        kind = f"{'const ' if buffer.role is BufferRole.WEIGHT else ''}{TYPES[buffer.type]}*"
        place = self.program.arguments.index(buffer)
        return f"{kind} const {self._name(buffer)} = ({kind})p[{place}]; // {buffer.name}"

    def _name(self, buffer: NetworkBuffer) -> str:
        if buffer.role is BufferRole.SCRATCH:
            return f"(scratch + {self.memory.offsets[buffer]})"
        return f"b{self.program.buffers.index(buffer)}"

    def _at(self, view: View) -> str:
        return f"{self._name(view.buffer)} + {view.offset}" if view.offset else self._name(view.buffer)

    def _operation(self, operation: Operation) -> tuple[bool, list[str]]:
        """Whether all threads share an operation, and its lines."""
        match operation:
            case MatrixProduct():
                return self._linear(operation)
            case CellStep():
                return self._cell(operation)
            case Gather():
                return False, [self._gather(operation)]
            case Convert(y, x):
                return False, [self._convert(y, x)]
            case Loops():
                return False, [self._loops(operation)]

    def _linear(self, operation: MatrixProduct) -> tuple[bool, list[str]]:
        y, x, weight, bias = operation.y, operation.x, operation.weight, operation.bias
        (M, K), N = x.shape, weight.shape[1]
        by_columns = weight.strides[0] != 1 and K > 1
        step = weight.strides[0] if by_columns else weight.strides[1]
        is_shared = N * K >= WORTH_SHARING
        part = f"fw::part_of({N}, {UNIT}, worker)" if is_shared else f"fw::Span{{0, {N}}}"
        function = "linear_by_columns" if by_columns else "linear"
        arguments = [part, self._name(y), N, self._at(x), x.strides[0], self._at(weight), step, M, K]
        arguments += ["nullptr" if bias is None else self._at(bias), self._scale(weight)]
        return is_shared, [f"fw::{function}({', '.join(map(str, arguments))});"]

    def _scale(self, weight: View) -> str:
        """The scale of the first row of a part of a weight."""
        scale = weight.buffer.scale
        return "nullptr" if scale is None else f"{self._name(scale)} + {weight.offset // weight.buffer.shape[1]}"

    def _gather(self, operation: Gather) -> str:
        table, index = operation.table, operation.index
        arguments = [self._name(operation.y), self._at(table), table.strides[0], table.shape[1], self._at(index)]
        arguments += [volume(index.shape), self._scale(table)]
        return f"fw::gather_rows({', '.join(map(str, arguments))});"

    def _check(self, operation: Gather) -> str:
        """The check of the indices, before any state changes."""
        index, rows = operation.index, operation.table.shape[0]
        return f"if (!fw::are_rows({self._at(index)}, {volume(index.shape)}, {rows})) return 1;"

    def _convert(self, y: NetworkBuffer, x: View) -> str:
        if y.type == x.buffer.type:
            to, place = self._name(y), self._at(x)  # the same memory if a step updates its state in place
            return f"if ({to} != {place}) memmove({to}, {place}, {y.size} * sizeof({TYPES[y.type]}));"
        return f"fw::convert({self._name(y)}, {self._at(x)}, {y.size});"

    def _loops(self, operation: Loops) -> str:
        key, order = structure(operation)
        if key not in self.loops:
            self.loops[key] = f"loops_{len(self.loops)}"
            self.texts.append(self._loops_function(self.loops[key], operation, order))
        placeholders = [operation.placeholders[node] for node in order]
        return f"{self.loops[key]}({', '.join(map(self._name, [*placeholders, *operation.writes]))}, own);"

    def _loops_function(self, name: str, operation: Loops, order: Sequence[Node]) -> str:
        places: dict[Node, Place] = {node: Place(f"a{n}", node.shape) for n, node in enumerate(order)}
        taken = [f"const real* {p.name}" for p in places.values()]
        nodes = upstream([d for _, v in operation.results for d in ancestors([v], places)], places)
        fixed = sorted((d for d in nodes if isinstance(d, ConstantTensor)), key=lambda d: d.serial)
        places |= {d: Place(f"{name}_table_{n}", d.shape) for n, d in enumerate(fixed)}
        # A result of the program may be a reshape of the value, which has the same memory.
        outputs = [Output(Place(f"y{n}", value.shape), value) for n, (_, value) in enumerate(operation.results)]
        program = schedule(places, outputs, constraints(nodes))
        choose_layouts([program], self.lanes)
        taken += [f"real* __restrict__ {output.buffer.name}" for output in outputs]
        function = self.functions.write(name, program, taken, "__attribute__((noinline)) ")
        return "\n".join([*tables([program]), function])

    def _cell(self, operation: CellStep) -> tuple[bool, list[str]]:
        name, plan = self._cell_function(CellSpec(operation.cell, operation.sizes, operation.dtype))
        B, T, H = operation.inputs[0].shape[:3]
        offset, lines = 0, list[str]()
        places = {}
        for b, view, new in zip(plan.state, operation.states, operation.new_states, strict=True):
            places[b.name] = f"(t ? {self._name(new)} : {self._at(view)}) + m * {volume(b.shape)}"
        for b, view in zip(plan.state, operation.initial, strict=False):
            reset = operation.reset
            assert reset is not None
            start = f"{self._at(view)} + m * {volume(b.shape)}"
            is_reset = f"({self._at(reset)})[b * {reset.strides[0]} + t * {reset.strides[1]}] != 0"
            places[b.name] = f"({is_reset} ? {start} : {places[b.name]})"
        for b, view in zip(plan.moving, operation.inputs, strict=True):
            places[b.name] = f"{self._at(view)} + b * {view.strides[0]} + t * {view.strides[1]} + h * {view.strides[2]}"
        for b, view in zip(plan.params, operation.params, strict=True):
            places[b.name] = f"{self._at(view)} + h * {volume(b.shape)}"
        for b, buffer in zip(plan.new, operation.new_states, strict=True):
            to = f"{self._name(buffer)} + m * {volume(b.shape)}"
            places[b.name] = to
            if not is_in_place(b, plan):
                places[b.name] = f"own + CELL_SCRATCH + {offset}"
                lines.append(f"        memcpy({to}, {places[b.name]}, sizeof(real) * {volume(b.shape)});")
                offset += padded(volume(b.shape))
        places[plan.y.name] = f"{self._name(operation.y)} + ((b * {T} + t) * {H} + h) * {volume(plan.y.shape)}"
        placeholders = [places[b.name] for b in step_arguments(plan)]
        is_shared = B * H > 1 and B * H * T * sum(volume(b.shape) for b in plan.state) >= WORTH_SHARING
        part = f"fw::part_of({B * H}, 1, worker)" if is_shared else f"fw::Span{{0, {B * H}}}"
        head = [
            "{",
            f"const fw::Span part = {part};",
            "for (int64_t m = part.first; m < part.last; ++m) {",
            f"    const int64_t b = m / {H}, h = m % {H};",
            "    (void)b; (void)h;",
            f"    for (int64_t t = 0; t < {T}; ++t) {{",
            f"        {name}({', '.join(placeholders)}, own);",
        ]
        return is_shared, [*head, *lines, "    }", "}", "}"]

    def _cell_function(self, spec: CellSpec) -> tuple[str, StepPlan]:
        key = (spec.cell.key, tuple(spec.sizes.items()))
        if key not in self.cells:
            name = f"cell_{len(self.cells)}"
            plan = plan_one_step(self.passes(spec), self.lanes)
            for node, buffer in plan.step.buffers.items():
                if isinstance(node, ConstantTensor):
                    buffer.tensor = f"{name}_{buffer.tensor}"
            function = self.functions.write(name, plan.step, [declaration(b, plan) for b in step_arguments(plan)])
            self.texts += [*tables([plan.step]), function]
            self.cells[key] = name, plan
        return self.cells[key]

    def _apart(self, cell: tuple[str, StepPlan]) -> int:
        _, plan = cell
        return sum(padded(volume(b.shape)) for b in plan.new if not is_in_place(b, plan))
