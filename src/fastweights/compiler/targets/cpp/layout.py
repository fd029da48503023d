"""Chooses the memory layout of matrices and the vectorised axis of every loop nest, by a cost estimate."""

from collections.abc import Iterable, Sequence

from fastweights.compiler.ir.nodes import Index, Node, load_nodes, volume
from fastweights.compiler.targets.cpp.schedule import Buffer, Layout, Nest, Program, Statement

HORIZONTAL = 3.0
"""The cost of a horizontal sum over the lanes of a vector, in loads of a vector."""


def choose_layouts(programs: Sequence[Program], lanes: int) -> None:
    """Swaps the two innermost axes of every layout if that reduces the cost of all nests that use the layout."""
    users = _users(programs)
    for layout in [*users, *users]:
        before, cost = layout.order, _total(users[layout], lanes)
        layout.order = (*before[:-2], before[-1], before[-2])
        if _total(users[layout], lanes) >= cost:
            layout.order = before


def _users(programs: Sequence[Program]) -> dict[Layout, list[tuple[Program, Nest]]]:
    """All layouts that may change, and the nests that load or store with each."""
    users: dict[Layout, list[tuple[Program, Nest]]] = {
        b.layout: [] for p in programs for b in p.buffers.values() if _is_free(b)
    }
    for program in programs:
        for nest in program.nests:
            for layout in {program.buffer(node).layout for node, _ in _accesses(nest)} & users.keys():
                users[layout].append((program, nest))
    return users


def vector_axis(program: Program, nest: Nest, lanes: int) -> int:
    """The axis with the lowest cost as vectorised axis; -1 for a nest without axes."""
    costs = [(_cost(program, nest, axis, lanes), -axis) for axis in range(len(nest.shape))]
    return -min(costs)[1] if costs else -1


def stride_along(axis: int, index: Iterable[Index], strides: Sequence[int]) -> int:
    """The distance in memory of neighbours along an axis."""
    return sum(i.step * stride for i, stride in zip(index, strides, strict=True) if i.axis == axis)


def _is_free(buffer: Buffer) -> bool:
    layout: Layout = buffer.layout
    return len(layout.order) > 1 and not layout.fixed


def _total(nests: Iterable[tuple[Program, Nest]], lanes: int) -> float:
    return sum(min((_cost(p, n, a, lanes) for a in range(len(n.shape))), default=0) for p, n in nests)


def _accesses(nest: Nest) -> set[tuple[Node, tuple[Index, ...]]]:
    loaded = {(load.node, load.index) for s in nest.statements for load in load_nodes(s.expression)}
    return loaded | {(s.node, s.place) for s in nest.statements if not s.reduction}


def _cost(program: Program, nest: Nest, axis: int, lanes: int) -> float:
    width = min(lanes, nest.shape[axis])
    loops = volume(nest.shape) / width
    cost = 0.0
    for node, index in _accesses(nest):
        stride = abs(stride_along(axis, index, program.buffer(node).strides))
        cost += loops * (0.25 if stride == 0 else 1 if stride == 1 else 1 + width)
    rows = volume(nest.shape) / nest.shape[axis]
    return cost + HORIZONTAL * rows * sum(_is_horizontal(s, axis) for s in nest.statements)


def _is_horizontal(statement: Statement, axis: int) -> bool:
    return bool(statement.reduction) and statement.axis == axis
