"""The tiling of loop nests: every element is computed once, in registers that are started and finished."""

from collections import Counter
from collections.abc import Iterator
from itertools import product

import pytest

from fastweights.compiler.ir.nodes import Constant, Index, Input
from fastweights.compiler.targets.cpp.schedule import Nest, Statement
from fastweights.compiler.targets.cpp.tiling import (
    ACCUMULATORS,
    Block,
    FinishLanes,
    FinishRows,
    Loop,
    Place,
    Registers,
    Start,
    StoreRows,
    Tiling,
    spans,
    tile,
)

SHAPES = [(1,), (7,), (64,), (3, 5), (5, 3), (17, 33), (8, 8), (64, 64), (9, 2), (4, 3, 7), (33, 4, 16)]
LANES = [2, 4, 8, 16]


def nest(shape: tuple[int, ...], reduced: tuple[int, ...]) -> Nest:
    """A nest with one elementwise statement, unless something is reduced, and a sum over every axis in `reduced`."""
    sums = [Statement(Input(()), shape, Constant(1.0), (), "sum", axis) for axis in reduced]
    place = tuple(Index(axis) for axis in range(len(shape)))
    return Nest(shape, [Statement(Input(shape), shape, Constant(1.0), place), *sums])


def tilings(shape: tuple[int, ...]) -> Iterator[tuple[int, Tiling]]:
    """The tilings of a shape for every vectorised axis, with that axis, for reductions along any axes."""
    axes = range(len(shape))
    for reduced in [(), *((a,) for a in axes), tuple(axes), (0, 0, 0)]:
        for axis, lanes in product(axes, LANES):
            yield axis, tile(nest(shape, reduced), axis, lanes)


def walk(parts, at=()):
    """Every part with the loop iterations that lead to it."""
    for part in parts:
        yield part, dict(at)
        if isinstance(part, Loop):
            for start in range(part.start, part.stop, part.step):
                yield from walk(part.body, (*at, (part.axis, start)))


@pytest.mark.parametrize("size", [1, 2, 3, 7, 8, 31, 64, 100])
@pytest.mark.parametrize("lanes", LANES)
def test_vectors_cover_an_axis_once_and_get_shorter(size, lanes):
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
            if isinstance(part, Block):
                rows = range(at.get(tiling.row, 0), at.get(tiling.row, 0) + part.rows)
                columns = range(at[axis], at[axis] + part.vectors * part.width)
                visits.update(product(rows, columns))
        size = shape[tiling.row] if tiling.row >= 0 else 1
        assert visits == dict.fromkeys(product(range(size), range(shape[axis])), 1)


@pytest.mark.parametrize("shape", SHAPES)
def test_accumulators_are_started_before_and_finished_after_their_blocks(shape):
    for _, tiling in tilings(shape):
        live = set[Registers]()
        for part, _ in walk(tiling.body):
            match part:
                case Start(registers):
                    assert registers not in live
                    live.add(registers)
                case Block(width, rows, vectors, row_accumulators, lane_accumulators):
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
def test_sums_down_the_rows_fit_into_registers(shape):
    for _, tiling in tilings(shape):
        for part, _ in walk(tiling.body):
            if isinstance(part, Start) and part.registers.place is Place.ROWS:
                assert (
                    part.registers.rows * part.registers.vectors * len(tiling.reductions(Place.ROWS))
                    <= 2 * ACCUMULATORS
                )
