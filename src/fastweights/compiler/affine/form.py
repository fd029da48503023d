"""The affine form of a step: states that are affine in themselves, with coefficients that do not depend on them.

Such a state is a matrix S `[R, C]` with the update

    S <- diag(row_decay) S diag(decay) + sum_r u_r key_r^T,     u_r = value_r - S erase_r.

The rows decay by themselves only if nothing is erased. Several states W_1, W_2, ... of one shape that are added to each
other are the columns of one S = [W_1 W_2 ...], and the decay is a matrix A of numbers: W_m <- sum_n A[m, n] W_n + ....

Other expressions read S in products with vectors, before or after the step. The coefficients may depend on reads of
other such states, which come first. A scalar m <- max(m + plus, floor), such as the stabiliser of an mLSTM, comes first
too, and so does a state that only delays values, such as the last key. States that are not affine are computed step by
step, where all other states that they read come first.

If a step mixes the numbers along an axis of a state, such as the real and the imaginary part of a complex one, the
state is split along it into several. These are coupled.

A state with any number of axes is one matrix or several. Some axes, flattened, are the columns of S, and others are the
rows. Each index along the remaining axes, the groups, has its own S and coefficients, like a head.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from fastweights.compiler.ir.nodes import Input, Node, Shape, Value, volume


class Read(NamedTuple):
    """A read of a state before or after the step: its product with a vector over some axes, and the input that replaces
    it.

    If `over` is empty, the vector is 1, and the read is the state itself. The vector of the finder has all axes of the
    state. The vector of a `Linear` has the axes of the groups and of the columns or rows of S.
    """

    state: str
    over: tuple[int, ...]
    vector: Value
    after: bool
    input: Input


class StateSplit(NamedTuple):
    """A state, the axis along which it is split, and the names of its pieces."""

    state: str
    axis: int
    pieces: tuple[str, ...]


class Part(NamedTuple):
    """A state as rows of S: the axes of the groups and of the columns. All other axes are rows."""

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
        """Number of matrices S: the product of the sizes of the groups."""
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
        """Whether a vector over the columns reads the state; otherwise it is a vector over the rows."""
        return {*read.over} == {a for a in self.columns if self.shape[a] > 1}

    def __str__(self) -> str:
        return f"{self.state}^T" if len(self.shape) == 2 and self.columns == (0,) else self.state

    @property
    def axis_roles(self) -> str:
        """The roles of the axes if there are more than two."""
        if len(self.shape) < 3:
            return ""
        kinds = {"groups": self.groups, "rows": self.rows, "columns": self.columns}
        roles = [f"{kind} {' '.join(map(str, axes))}" for kind, axes in kinds.items() if axes]
        return f" (axes of {self.state}: {', '.join(roles)})"


class Write(NamedTuple):
    """The write u key^T with u = value - S erase, by state. A term that is 0 is None."""

    key: Value
    erase: Value | None
    values: tuple[Value | None, ...]


@dataclass(frozen=True, eq=False)
class Linear:
    """States that are one matrix S.

    Parts with the same coefficients except for their values are stacked along the rows. Coupled parts are side by side:
    vectors over the columns have an axis of the parts in front of their axes of columns.

    A decay is None without decay, else a number or a vector over the columns. That of coupled parts has two axes of the
    parts in front, and is a matrix. The decay of the rows is a vector over the rows, or None. Vectors over the columns
    read S; vectors over the rows read it if S is a single state or coupled. All values have the axes of the groups
    first.
    """

    parts: tuple[Part, ...]
    decay: Value | None
    row_decay: Value | None
    writes: tuple[Write, ...]
    reads: tuple[Read, ...]
    is_coupled: bool = False

    @property
    def across(self) -> tuple[Read, ...]:
        """The reads by vectors over the rows."""
        parts = {part.state: part for part in self.parts}
        return tuple(read for read in self.reads if not parts[read.state].is_along(read))

    @property
    def decays_by_column(self) -> bool:
        """Whether a decay has a number for every column."""
        others = len(self.parts[0].groups) + 2 * self.is_coupled
        return self.decay is not None and len(self.decay.shape) > others

    @property
    def read_inputs(self) -> set[Node]:
        """The inputs that replace the reads of the stage."""
        return {read.input for read in self.reads}

    @property
    def values(self) -> list[Value]:
        """The values that the stage is computed from."""
        parts = [self.decay, self.row_decay, *(r.vector for r in self.reads)]
        parts += [v for w in self.writes for v in (w.key, w.erase, *w.values)]
        return [v for v in parts if v is not None]

    def __str__(self) -> str:
        parts = [str(part) for part in self.parts]
        names = parts if len(parts) < 4 else [parts[0], "...", parts[-1]]
        name = f"[{' '.join(names)}]" if self.is_coupled else " and ".join(parts)
        decay = "" if self.decay is None else " A" if self.is_coupled else " diag(a)" if self.decays_by_column else " a"
        described = self.parts[:1] if self.is_coupled else self.parts
        before = "" if self.row_decay is None else "diag(b) "
        erased = [w for w in self.writes if w.erase is not None]
        placeholders = [w for w in self.writes if any(v is not None for v in w.values)]
        terms = [f"{before}{name}{decay}", *_terms(erased, f"- {name} e f^T"), *_terms(placeholders, "+ v k^T")]
        return f"{name} <- {' '.join(terms)}{''.join(part.axis_roles for part in described)}"


def _terms(writes: Sequence[Write], term: str) -> list[str]:
    """A term, with the number of writes in front of it if there are several."""
    return [f"{term[:2]}{len(writes)} ({term[2:]})" if len(writes) > 1 else term] if writes else []


@dataclass(frozen=True, eq=False)
class RunningMax:
    """A scalar m <- max(m + plus, floor), and the inputs that replace it before and after the step."""

    state: str
    plus: Value
    floor: Value
    before: Input
    after: Input

    @property
    def read_inputs(self) -> set[Node]:
        """The inputs that replace the reads of the stage."""
        return {self.before, self.after}

    @property
    def values(self) -> list[Value]:
        """The values that the stage is computed from."""
        return [self.plus, self.floor]

    def __str__(self) -> str:
        return f"{self.state} <- max({self.state} + a, b)"


@dataclass(frozen=True, eq=False)
class Delay:
    """A state that only delays values, and the inputs that replace it before and after the step.

    `value` is the new state. It may read `before`, but nothing is left of the old state after a number of `steps`.
    """

    state: str
    value: Value
    steps: int
    before: Input
    after: Input

    @property
    def read_inputs(self) -> set[Node]:
        """The inputs that replace the reads of the stage."""
        return {self.before, self.after}

    @property
    def values(self) -> list[Value]:
        """The values that the stage is computed from."""
        return [self.value]

    def __str__(self) -> str:
        return f"{self.state} <- x" if self.steps == 1 else f"{self.state} <- the last {self.steps} x"


class RecurrentPart(NamedTuple):
    """A state of a recurrent stage, its new value, and the inputs that replace it before and after the step."""

    state: str
    value: Value
    before: Input
    after: Input


@dataclass(frozen=True, eq=False)
class Recurrent:
    """States that are any functions of themselves and of known values, computed step by step.

    They are a scalar of another form, or what is left of a cell whose other states are affine.
    """

    parts: tuple[RecurrentPart, ...]

    @property
    def read_inputs(self) -> set[Node]:
        """The inputs that replace the reads of the stage."""
        return {d for part in self.parts for d in (part.before, part.after)}

    @property
    def values(self) -> list[Value]:
        """The values that the stage is computed from."""
        return [part.value for part in self.parts]

    def __str__(self) -> str:
        names = ", ".join(part.state for part in self.parts)
        how = " step by step" if any(part.value.shape for part in self.parts) else ""
        return f"({names}) <- f({names}){how}" if len(self.parts) > 1 else f"{names} <- f({names}){how}"


Stage = Linear | RunningMax | Delay | Recurrent


@dataclass(frozen=True, eq=False)
class AffineForm:
    """The stages in the order in which they are computed, each for all time steps at once, and the output."""

    placeholders: tuple[Mapping[str, Input], Mapping[str, Input]]
    """The inputs and the params of the step."""
    stages: tuple[Stage, ...]
    y: Value
    splits: tuple[StateSplit, ...] = ()
    """The states of the cell that the stages know as several."""

    def __str__(self) -> str:
        return ", ".join(map(str, self.stages))
