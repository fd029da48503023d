"""Outlining: loop nests with the same structure become one function, which the step calls with different buffers.

The trace unrolls inner loops of a cell, such as the iterations of conjugate gradients. Outlining rolls them up again:
the C++ compiler compiles each nest once, and the step calls it in every iteration.
"""

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from typing import NamedTuple

from fastweights.compiler.ir.nodes import Node, load_nodes, structure_of
from fastweights.compiler.targets.cpp.layout import vector_axis
from fastweights.compiler.targets.cpp.loops import printed
from fastweights.compiler.targets.cpp.schedule import Buffer, Nest, Program, Statement
from fastweights.compiler.targets.cpp.tiling import Place, Tiling, tile

OFTEN = 4
"""Smallest number of nests for one function. A call prevents the C++ compiler from keeping numbers in registers."""
LONG = 8
"""A nest with at most this number of lines stays in the step."""


class Outlined(NamedTuple):
    """The functions, and the lines of the step that calls them."""

    functions: list[str]
    lines: list[str]


def outlined(name: str, program: Program, lanes: int) -> Outlined:
    """Prints the nests of a program, with a function for each structure that occurs often in the step `name`."""
    structures = [structure(program, nest) for nest in program.nests]
    counts, functions, lines = Counter(structures), dict[Hashable, _Function](), list[str]()
    for nest, key in zip(program.nests, structures, strict=True):
        tiling = tile(nest, vector_axis(program, nest, lanes), lanes)
        if counts[key] >= OFTEN and key not in functions:
            functions |= _function(key, f"{name}_nest_{len(functions)}", program, nest, tiling)
        lines += [f"    // {line}" for line in dict.fromkeys(s.node.line for s in nest.statements) if line]
        called = functions.get(key)
        lines += printed(program, nest, tiling) if called is None else [_call(called, program, nest, tiling)]
    return Outlined([function.text for function in functions.values()], lines)


def structure(program: Program, nest: Nest) -> Hashable:
    """A key that two nests share if they print the same code up to the names of their buffers."""
    return nest.shape, _Numbering(program).statements(nest.statements)


class _Numbering:
    """Replaces the nodes and the buffers of a nest by numbers, in the order in which they first occur."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.nodes: dict[Node, int] = {}
        self.buffers: dict[str, int] = {}

    def statements(self, statements: Sequence[Statement]) -> Hashable:
        return tuple(
            (
                structure_of(s.expression, self._node),
                self._node(s.node),
                s.node.size,
                s.place,
                s.reduction,
                s.axis,
                s.add,
            )
            for s in statements
        )

    def _node(self, node: Node) -> Hashable:
        buffer = self.program.buffer(node)
        number = self.nodes.setdefault(node, len(self.nodes))
        return number, self.buffers.setdefault(buffer.name, len(self.buffers)), buffer.strides, buffer.is_scalar


class _Function(NamedTuple):
    name: str
    text: str


def _function(key: Hashable, name: str, program: Program, nest: Nest, tiling: Tiling) -> dict[Hashable, _Function]:
    """The function of a structure, whose memory does not overlap; none for a nest of few lines."""
    parameters = _parameters(program, nest, tiling)
    names = {b.name: f"{'s' if b.is_scalar else 'm'}{n}" for n, b in enumerate(parameters)}
    lines = printed(program, nest, tiling, names)
    if len(lines) <= LONG:
        return {}
    stored = {program.buffer(s.node).name for s in nest.statements}
    taken = ", ".join(_declaration(b, names, b.name in stored) for b in parameters)
    body = "\n".join(lines)
    return {key: _Function(name, f"\n__attribute__((noinline)) static void {name}({taken}) {{\n{body}\n}}")}


def _call(function: _Function, program: Program, nest: Nest, tiling: Tiling) -> str:
    return f"    {function.name}({', '.join(b.name for b in _parameters(program, nest, tiling))});"


def _declaration(buffer: Buffer, names: Mapping[str, str], is_stored: bool) -> str:
    name = names[buffer.name]
    if buffer.is_scalar:
        return f"real& {name}" if is_stored else f"const real {name}"
    return f"{'' if is_stored else 'const '}real* __restrict__ {name}"


def _parameters(program: Program, nest: Nest, tiling: Tiling) -> list[Buffer]:
    """The buffers of a nest: results in memory, then the operands of each statement, then all other results."""
    statements = list(enumerate(nest.statements))
    cleared = [s.node for n, s in statements if tiling.places.get(n) is Place.MEMORY]
    read = [d for s in nest.statements for d in _operands(program, nest, s)]
    elementwise = [s.node for n, s in statements if n not in tiling.places]
    reduced = [s.node for n, s in statements if n in tiling.places]
    buffers = map(program.buffer, [*cleared, *read, *elementwise, *reduced])
    return list({b.name: b for b in buffers}.values())


def _operands(program: Program, nest: Nest, statement: Statement) -> list[Node]:
    """The nodes that a statement loads, those in memory first. It does not load what its nest has just stored."""
    stored = {(s.node, s.place) for s in nest.statements if not s.reduction}
    loads = [load for load in load_nodes(statement.expression) if (load.node, load.index) not in stored]
    return [load.node for load in sorted(loads, key=lambda load: program.buffer(load.node).is_scalar)]
