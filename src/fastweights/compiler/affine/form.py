"""States that go in a step to what is affine in themselves, with coefficients that do not wait for them.

Such a state S, as a matrix `[R, C]` or its transpose, goes in a step to

    S <- S diag(decay) + sum_r u_r key_r^T,     u_r = value_r - S erase_r,

and everything else sees it in products with vectors, before the step or after it. The coefficients may depend on what
was read of other such states: these come first. A scalar m <- max(m + plus, floor), as of a stabiliser, comes first,
too.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from fastweights.compiler.ir import Definition, Input, Shape, Value, volume


class Read(NamedTuple):
    """What is seen of a state: its product with a vector over one of its axes (None: one of size 1 that it lacks),
    after the step or before, and what stands for it."""

    state: str
    axis: int | None
    vector: Value
    after: bool
    seen: Input


class Part(NamedTuple):
    """A state as rows of S: which of its axes goes along the columns of S, if any does."""

    state: str
    shape: Shape
    column: int | None

    @property
    def rows(self) -> int:
        """How many rows of S it is."""
        return volume([n for axis, n in enumerate(self.shape) if axis != self.column])

    @property
    def has_rows(self) -> bool:
        """Whether an axis of it goes along them."""
        return len(self.shape) > (self.column is not None)

    @property
    def columns(self) -> int:
        """How many columns S has."""
        return 1 if self.column is None else self.shape[self.column]


class Write(NamedTuple):
    """u key^T with u = value - S erase: what each part is given; what is 0 is None."""

    key: Value
    erase: Value | None
    values: tuple[Value | None, ...]


@dataclass(frozen=True, eq=False)
class Linear:
    """States that are affine with the same coefficients but for their values: below each other they are one S.

    A decay is None where nothing fades, else one number or one a column. Vectors over the columns read S, and also
    those over the rows where S is one state.
    """

    parts: tuple[Part, ...]
    decay: Value | None
    writes: tuple[Write, ...]
    reads: tuple[Read, ...]

    @property
    def across(self) -> tuple[Read, ...]:
        """The reads by vectors over the rows."""
        columns = {part.state: part.column for part in self.parts}
        return tuple(read for read in self.reads if read.axis != columns[read.state])

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
        name = " and ".join(
            part.state + ("^T" if part.column == 0 and len(part.shape) > 1 else "") for part in self.parts
        )
        decay = "" if self.decay is None else " diag(a)" if self.decay.shape else " a"
        erased = [w for w in self.writes if w.erase is not None]
        given = [w for w in self.writes if any(v is not None for v in w.values)]
        told = [f"{name}{decay}", *_told(erased, f"- {name} e f^T"), *_told(given, "+ v k^T")]
        return f"{name} <- {' '.join(told)}"


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
