"""Recognises states that only delay values, such as the last key or the window of a short convolution.

A step moves the contents of such a state, so that nothing is left of them after a number of steps.
"""

from collections.abc import Iterator, Mapping
from graphlib import CycleError, TopologicalSorter

from fastweights.compiler.ir.nodes import (
    Assemble,
    Expression,
    Index,
    Input,
    Load,
    Map,
    Region,
    Shape,
    Value,
    identity,
    load_nodes,
    substitute,
    upstream,
)

MOST = 16
"""Maximum length of a window, since every step of it is a pass over the whole sequence."""

Links = Mapping[int, set[int]]
"""The positions along one axis of a state that every new position is computed from."""


def delay_of(value: Value, state: Input) -> int | None:
    """The number of steps after which no new value depends on the old state; None if there is none.

    It is 1 for a value that does not depend on the state at all, and n for a window of the last n steps.
    """
    if state not in upstream(load.node for load in load_nodes(value.expression)):
        return 1
    lengths = (_steps(links) for axis in range(len(state.shape)) if (links := _links(value, state, axis)) is not None)
    return min((steps for steps in lengths if steps is not None and steps <= MOST), default=None)


def _links(value: Value, state: Input, axis: int) -> Links | None:
    """The links along an axis; None if a position depends on itself or on all positions."""
    links = dict[int, set[int]]()
    for position in range(value.shape[axis]):
        at = [Index(-1, 0, position) if a == axis else i for a, i in enumerate(identity(value.shape))]
        links[position] = set[int]()
        for source in _positions(substitute(value.expression, at), state, axis):
            if source is None or source == position:
                return None
            links[position].add(source)
    return links


def _steps(links: Links) -> int | None:
    """The length of the longest chain of links, in steps; None if there is a circle."""
    steps = dict[int, int]()
    try:
        for position in TopologicalSorter(links).static_order():
            steps[position] = 1 + max((steps[source] for source in links[position]), default=0)
    except CycleError:
        return None
    return max(steps.values())


def _positions(expression: Expression, state: Input, axis: int) -> Iterator[int | None]:
    """The positions of the state along an axis that an expression reads; None for all."""
    for load in load_nodes(expression):
        if load.node is state:
            yield load.index[axis].start if load.index[axis].axis < 0 else None
        elif state in upstream([load.node]):
            yield from _positions_of(load, state, axis)


def _positions_of(load: Load, state: Input, axis: int) -> Iterator[int | None]:
    match load.node:
        case Map(_, expression):
            yield from _positions(substitute(expression, load.index), state, axis)
        case Assemble(shape, regions):
            for region in _regions_at(shape, regions, load.index):
                at = [i._replace(start=i.start - first) for i, first in zip(load.index, region.start, strict=True)]
                yield from _positions(substitute(region.expression, at), state, axis)
        case _:
            yield None


def _regions_at(shape: Shape, regions: tuple[Region, ...], index: tuple[Index, ...]) -> Iterator[Region]:
    """The regions that may hold the elements at an index. A later region hides the earlier ones."""
    for region in reversed(regions):
        ends = [first + size for first, size in zip(region.start, region.shape, strict=True)]
        fixed = [first <= i.start < end for i, first, end in zip(index, region.start, ends, strict=True) if i.axis < 0]
        if all(fixed):
            yield region
            if all(size == n for i, size, n in zip(index, region.shape, shape, strict=True) if i.axis >= 0):
                return
