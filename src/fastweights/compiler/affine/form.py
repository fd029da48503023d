"""States that go in a step to what is affine in themselves, with coefficients that do not wait for them.

Such a state is a matrix S `[R, C]`, and a step makes of it

    S <- S diag(decay) + sum_r u_r key_r^T,     u_r = value_r - S erase_r.

Everything else sees S in products with vectors, before the step or after it. The coefficients may depend on reads of
other such states: those states come first. A scalar m <- max(m + plus, floor), as of a stabiliser, comes first, too.

A state of any number of axes is such a matrix, or several: some of its axes, flattened, are the columns of S, others
the rows. Each place along the remaining axes, the groups, has an S and coefficients of its own, like a head.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from fastweights.compiler.ir.nodes import Definition, Input, Shape, Value, volume


class Read(NamedTuple):
    """A read of a state: its product with a vector over some of its axes, after the step or before, and what
    stands for it. Where `over` is empty, the vector is 1, and the state is seen as it is.

    The finder gives the vector over all axes of the state, a `Linear` over the groups and the columns or rows of S.
    """

    state: str
    over: tuple[int, ...]
    vector: Value
    after: bool
    seen: Input


class Part(NamedTuple):
    """A state as rows of S: which of its axes are groups, and which go along the columns; all others are rows."""

    state: str
    shape: Shape
    groups: tuple[int, ...]
    columns: tuple[int, ...]

    @property
    def rows(self) -> tuple[int, ...]:
        """The axes along the rows."""
        return tuple(a for a in range(len(self.shape)) if a not in (*self.groups, *self.columns))

    def sizes(self, axes: Iterable[int]) -> Shape:
        """The sizes of some axes."""
        return tuple(self.shape[a] for a in axes)

    @property
    def matrices(self) -> int:
        """Number of matrices S: places along the groups."""
        return volume(self.sizes(self.groups))

    @property
    def height(self) -> int:
        """Number of rows."""
        return volume(self.sizes(self.rows))

    @property
    def width(self) -> int:
        """Number of columns."""
        return volume(self.sizes(self.columns))

    def is_along(self, read: Read) -> bool:
        """Whether a vector over the columns reads; otherwise it is one over the rows."""
        return {*read.over} == {a for a in self.columns if self.shape[a] > 1}

    def __str__(self) -> str:
        return f"{self.state}^T" if len(self.shape) == 2 and self.columns == (0,) else self.state

    @property
    def told(self) -> str:
        """The roles of the axes, where there are more than two."""
        if len(self.shape) < 3:
            return ""
        kinds = {"groups": self.groups, "rows": self.rows, "columns": self.columns}
        told = [f"{kind} {' '.join(map(str, axes))}" for kind, axes in kinds.items() if axes]
        return f" (axes of {self.state}: {', '.join(told)})"


class Write(NamedTuple):
    """u key^T with u = value - S erase: what each part is given; what is 0 is None."""

    key: Value
    erase: Value | None
    values: tuple[Value | None, ...]


@dataclass(frozen=True, eq=False)
class Linear:
    """States that are affine with the same coefficients but for their values: below each other they are one S.

    A decay is None where nothing fades, else one number or one a column. Vectors over the columns read S, and also
    those over the rows where S is one state. All values have the axes of the groups first.
    """

    parts: tuple[Part, ...]
    decay: Value | None
    writes: tuple[Write, ...]
    reads: tuple[Read, ...]

    @property
    def across(self) -> tuple[Read, ...]:
        """The reads by vectors over the rows."""
        parts = {part.state: part for part in self.parts}
        return tuple(read for read in self.reads if not parts[read.state].is_along(read))

    @property
    def fades_by_column(self) -> bool:
        """Whether a decay has a number for every column."""
        return self.decay is not None and len(self.decay.shape) > len(self.parts[0].groups)

    @property
    def gives(self) -> set[Definition]:
        """What stands for what is seen of it."""
        return {read.seen for read in self.reads}

    @property
    def values(self) -> list[Value]:
        """All that it is computed from."""
        parts = [self.decay, *(r.vector for r in self.reads)]
        parts += [v for w in self.writes for v in (w.key, w.erase, *w.values)]
        return [v for v in parts if v is not None]

    def __str__(self) -> str:
        name = " and ".join(map(str, self.parts))
        decay = "" if self.decay is None else " diag(a)" if self.fades_by_column else " a"
        erased = [w for w in self.writes if w.erase is not None]
        given = [w for w in self.writes if any(v is not None for v in w.values)]
        told = [f"{name}{decay}", *_told(erased, f"- {name} e f^T"), *_told(given, "+ v k^T")]
        return f"{name} <- {' '.join(told)}{''.join(part.told for part in self.parts)}"


def _told(writes: Sequence[Write], term: str) -> list[str]:
    """One term, or several alike."""
    return [f"{term[:2]}{len(writes)} ({term[2:]})" if len(writes) > 1 else term] if writes else []


@dataclass(frozen=True, eq=False)
class Highest:
    """A scalar m <- max(m + plus, floor), and what stands for it before and after the step."""

    state: str
    plus: Value
    floor: Value
    before: Input
    after: Input

    @property
    def gives(self) -> set[Definition]:
        """What stands for what is seen of it."""
        return {self.before, self.after}

    @property
    def values(self) -> list[Value]:
        """All that it is computed from."""
        return [self.plus, self.floor]

    def __str__(self) -> str:
        return f"{self.state} <- max({self.state} + a, b)"


Stage = Linear | Highest


@dataclass(frozen=True, eq=False)
class AffineForm:
    """States in the order in which they can be computed, each for all time at once, and the output."""

    given: tuple[Mapping[str, Input], Mapping[str, Input]]
    """The inputs and the params of the step."""
    stages: tuple[Stage, ...]
    y: Value

    def __str__(self) -> str:
        return ", ".join(map(str, self.stages))
