"""How matrices lie in memory and which axis of a loop nest is a vector, chosen together by an estimate of the cost."""

from collections.abc import Iterable, Sequence

from fastweights.compiler.ir import Index, load_nodes, volume
from fastweights.compiler.schedule import Buffer, Layout, Nest, Program, Statement

HORIZONTAL = 3.0
"""The cost of adding up the lanes of a vector, in loads of one."""


def choose_layouts(programs: Sequence[Program], lanes: int) -> None:
    """Swaps the two innermost axes of a layout wherever that makes the sum of all loop nests cheaper."""
    layouts = list(dict.fromkeys(b.layout for p in programs for b in p.buffers.values() if _is_free(b)))
    best = _total(programs, lanes)
    for _ in range(2):
        for layout in layouts:
            before = layout.order
            layout.order = (*before[:-2], before[-1], before[-2])
            cost = _total(programs, lanes)
            if cost < best:
                best = cost
            else:
                layout.order = before


def vector_axis(program: Program, nest: Nest, lanes: int) -> int:
    """The axis that is cheapest as a vector; -1 for a nest without axes."""
    costs = [(_cost(program, nest, axis, lanes), -axis) for axis in range(len(nest.shape))]
    return -min(costs)[1] if costs else -1


def stride_along(axis: int, index: Iterable[Index], strides: Sequence[int]) -> int:
    """How far in memory one step along an axis goes."""
    return sum(i.step * stride for i, stride in zip(index, strides, strict=True) if i.axis == axis)


def _is_free(buffer: Buffer) -> bool:
    layout: Layout = buffer.layout
    return len(layout.order) > 1 and not layout.fixed


def _total(programs: Sequence[Program], lanes: int) -> float:
    return sum(min((_cost(p, n, a, lanes) for a in range(len(n.shape))), default=0) for p in programs for n in p.nests)


def _cost(program: Program, nest: Nest, axis: int, lanes: int) -> float:
    width = min(lanes, nest.shape[axis])
    loops = volume(nest.shape) / width
    accesses = {(load.definition, load.index) for s in nest.statements for load in load_nodes(s.expression)}
    accesses |= {(s.definition, s.place) for s in nest.statements if not s.reduction}
    cost = 0.0
    for definition, index in accesses:
        stride = abs(stride_along(axis, index, program.buffer(definition).strides))
        cost += loops * (0.25 if stride == 0 else 1 if stride == 1 else 1 + width)
    rows = volume(nest.shape) / nest.shape[axis]
    return cost + HORIZONTAL * rows * sum(_is_horizontal(s, axis) for s in nest.statements)


def _is_horizontal(statement: Statement, axis: int) -> bool:
    return bool(statement.reduction) and statement.axis == axis
