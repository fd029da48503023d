"""The tiling of a loop nest: which axis is vectorised, how far each loop is unrolled, and where sums are kept.

The functions only decide. They return records that `loops.py` prints as C++.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from fastweights.compiler.targets.cpp.schedule import Nest

ACCUMULATORS = 12
"""Number of vectors of partial sums that a loop keeps in registers."""
ROWS = 8
"""Number of rows that are summed side by side if the vectors run along the sum."""
WHOLE_ROW = 8
"""Largest number of vectors of a row for which sums down the rows are in registers together with sums along them."""
UNROLLED = 4
"""Number of vectors or rows per iteration without sums down the rows."""


class Place(Enum):
    """The memory of the partial results of a reduction."""

    LANES = "registers, for a reduction along the vectorised axis: the lanes are combined at the end of every row"
    ROWS = "registers, for a reduction down the rows: one accumulator per vector of a row"
    MEMORY = "the buffer of the result"


class Registers(NamedTuple):
    """The accumulators of each reduction in a place: `rows` times `vectors` vectors of `width` numbers."""

    place: Place
    width: int
    rows: int
    vectors: int


@dataclass(frozen=True)
class Loop:
    """A loop over an axis from `start` to `stop`; without a loop if a single iteration covers the range."""

    axis: int
    start: int
    stop: int
    step: int
    body: tuple["Part", ...]


@dataclass(frozen=True)
class CppBlock:
    """Straight code for `rows` rows and `vectors` vectors of `width` numbers.

    Row `r` of a sum down the rows goes to accumulator `r % row_accumulators`. Vector `v` of a sum along the row goes to
    accumulator `v % lane_accumulators`.
    """

    width: int
    rows: int
    vectors: int
    row_accumulators: int = 1
    lane_accumulators: int = 1


@dataclass(frozen=True)
class AccumulatorStart:
    """Sets accumulators to the neutral element of their reduction."""

    registers: Registers


@dataclass(frozen=True)
class FinishRows:
    """Combines the accumulators of sums down the rows, and stores a vector for each of `registers.vectors`."""

    registers: Registers


@dataclass(frozen=True)
class FinishLanes:
    """Combines the accumulators of sums along the rows to one number per row."""

    registers: Registers


@dataclass(frozen=True)
class StoreRows:
    """Combines the results of `FinishLanes` of all widths, and stores one number per row."""

    widths: tuple[int, ...]
    rows: int


Part = Loop | CppBlock | AccumulatorStart | FinishRows | FinishLanes | StoreRows


@dataclass(frozen=True)
class Tiling:
    """The tiling of a nest.

    `outer` are the axes of plain loops around the `body`, and `row` is the axis whose iterations are unrolled as rows.
    Axes are -1 where there is none. `places` has an entry for every statement that is a reduction, by its position.
    """

    vector: int
    row: int
    outer: tuple[int, ...]
    places: Mapping[int, Place]
    body: tuple[Part, ...]

    def reductions(self, place: Place) -> list[int]:
        """The positions of the reductions in a place."""
        return [n for n, own in self.places.items() if own is place]


class Span(NamedTuple):
    """A range of an axis that is covered by vectors of one width."""

    width: int
    start: int
    stop: int

    @property
    def vectors(self) -> int:
        """Number of vectors."""
        return (self.stop - self.start) // self.width


def spans(size: int, width: int) -> Iterator[Span]:
    """Covers an axis with vectors of a width, and its remainder with vectors of half the width each time."""
    start = 0
    while start < size:
        stop = start + (size - start) // width * width
        if stop > start:
            yield Span(width, start, stop)
        start, width = stop, width // 2


def tile(nest: Nest, axis: int, lanes: int) -> Tiling:
    """The tiling of a nest that is vectorised along an axis with `lanes` numbers per vector.

    With a reduction along the vectorised axis, the rows are outside: several sums run side by side, and a short row is
    one block, so that sums down the rows are in registers too. Otherwise the vectors are outside, and the sums down the
    rows are in registers.
    """
    if axis < 0:
        return Tiling(-1, -1, (), {}, (CppBlock(1, 1, 1),))
    vectors = tuple(spans(nest.shape[axis], lanes))
    row = _row(nest, axis)
    places = _places(nest, axis, row, sum(span.vectors for span in vectors))
    order = _rows_outside if Place.LANES in places.values() else _vectors_outside
    body = order(nest, axis, row, vectors, places)
    outer = tuple(a for a in range(len(nest.shape)) if a not in (axis, row))
    return Tiling(axis, row, outer, places, tuple(body))


def _row(nest: Nest, axis: int) -> int:
    """The longest other axis, but preferably one that is reduced if none is reduced along the vectors; -1 for none."""
    reduced = [s.axis for s in nest.statements if s.reduction]
    is_along = axis in reduced
    others = [a for a in range(len(nest.shape)) if a != axis]
    return max(reversed(others), key=lambda a: (0 if is_along else reduced.count(a), nest.shape[a]), default=-1)


def _places(nest: Nest, axis: int, row: int, count: int) -> dict[int, Place]:
    reduced = {n: s.axis for n, s in enumerate(nest.statements) if s.reduction}
    fits = axis not in reduced.values() or count <= WHOLE_ROW
    down = Place.ROWS if fits else Place.MEMORY
    return {n: Place.LANES if a == axis else down if a == row else Place.MEMORY for n, a in reduced.items()}


def _vectors_outside(
    nest: Nest, axis: int, row: int, vectors: tuple[Span, ...], places: Mapping[int, Place]
) -> Iterator[Part]:
    down = [*places.values()].count(Place.ROWS)
    most = max(1, ACCUMULATORS // down) if down else UNROLLED
    # With a store in every row, four vectors per row would make the stores wait for each other.
    most = min(most, 2) if down and down < len(nest.statements) else most
    for width, start, stop in vectors:
        count = (stop - start) // width
        side = next(n for n in (4, 3, 2, 1) if n <= most and count % n == 0)
        body = (
            (CppBlock(width, 1, side),) if row < 0 else tuple(_down_the_rows(nest.shape[row], row, width, side, down))
        )
        yield Loop(axis, start, stop, width * side, body)


def _down_the_rows(size: int, row: int, width: int, side: int, down: int) -> Iterator[Part]:
    most = ACCUMULATORS // (side * down) if down else 2
    rows = next(n for n in (4, 2, 1) if n <= max(1, min(most, size)))
    registers = Registers(Place.ROWS, width, rows, side)
    full = size // rows * rows
    yield AccumulatorStart(registers)
    yield Loop(row, 0, full, rows, (CppBlock(width, rows, side, rows, side),))
    yield from (Loop(row, n, n + 1, 1, (CppBlock(width, 1, side, rows, side),)) for n in range(full, size))
    yield FinishRows(registers)


def _rows_outside(
    nest: Nest, axis: int, row: int, vectors: tuple[Span, ...], places: Mapping[int, Place]
) -> Iterator[Part]:
    along, down = ([*places.values()].count(place) for place in (Place.LANES, Place.ROWS))
    accumulators = max(1, UNROLLED // sum(span.vectors for span in vectors))
    sums = [Registers(Place.ROWS, span.width, accumulators, span.vectors) for span in vectors] if down else []
    yield from map(AccumulatorStart, sums)
    for rows, start, stop in spans(nest.shape[row] if row >= 0 else 1, ROWS if along < 3 and not down else ROWS // 2):
        body = tuple(_along_the_row(axis, rows, vectors, accumulators, is_whole=bool(down)))
        yield from (Loop(row, start, stop, rows, body),) if row >= 0 else body
    for span, registers in zip(vectors, sums, strict=False):
        yield Loop(axis, span.start, span.stop, span.stop - span.start, (FinishRows(registers),))


def _along_the_row(
    axis: int, rows: int, vectors: tuple[Span, ...], accumulators: int, is_whole: bool
) -> Iterator[Part]:
    """The blocks of some rows; with `is_whole`, all vectors of a width are one block."""
    for span in vectors:
        side = next(n for n in (4, 2, 1) if rows * n <= UNROLLED and span.vectors % n == 0) if rows < UNROLLED else 1
        count = span.vectors if is_whole else side
        registers = Registers(Place.LANES, span.width, rows, side)
        block = CppBlock(span.width, rows, count, accumulators, side)
        yield AccumulatorStart(registers)
        yield Loop(axis, span.start, span.stop, span.width * count, (block,))
        yield FinishLanes(registers)
    yield StoreRows(tuple(span.width for span in vectors), rows)
