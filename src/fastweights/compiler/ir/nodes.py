"""Tensor expressions: every tensor of a step is a `Definition`, an expression in the indices of its own axes.

The language is closed: six kinds of definitions, three of expressions, three reductions, the functions of
`functions.py`. Nothing changes once it is made. `verify.py` says what is well formed, `interpret.py` what it means, and
`show.py` how it is written.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Literal, NamedTuple, final

Shape = tuple[int, ...]
Key = tuple[object, ...]
Reduction = Literal["sum", "max", "min"]


class Index(NamedTuple):
    """An affine index: `step * axis + start`; axis -1 means a constant."""

    axis: int
    step: int = 1
    start: int = 0


@dataclass(frozen=True)
class Constant:
    """The same number everywhere."""

    value: float


@dataclass(frozen=True)
class Load:
    """An element of a definition, one `Index` an axis of it."""

    definition: "Definition"
    index: tuple[Index, ...]


@dataclass(frozen=True)
class Apply:
    """A function of `functions.FUNCTIONS`, elementwise."""

    function: str
    arguments: tuple["Expression", ...]


Expression = Constant | Load | Apply


class Region(NamedTuple):
    """A box inside a definition, and what is written there."""

    start: Shape
    shape: Shape
    expression: Expression


@dataclass(frozen=True, eq=False)
class Definition:
    """A tensor of one step: an `Input`, `Table`, `Map`, `Reduce`, `Assemble` or `Reshape`. Each equals itself alone.

    `line` is where the cell says so; `serial` counts all that are made, operands before what reads them.
    """

    shape: Shape
    line: str = field(default="", kw_only=True)
    serial: int = field(default_factory=count().__next__, kw_only=True)

    @property
    def size(self) -> int:
        """Number of elements."""
        return volume(self.shape)

    @property
    def is_matrix(self) -> bool:
        """Whether it has two axes or more."""
        return sum(n > 1 for n in self.shape) > 1

    @property
    def bodies(self) -> tuple[Region, ...]:
        """What is computed of it in loops, and where: the shape is that of the loops."""
        return ()

    def operands(self) -> Iterator["Definition"]:
        """What it is computed from, with repetitions."""
        for body in self.bodies:
            yield from loads(body.expression)


@final
@dataclass(frozen=True, eq=False)
class Input(Definition):
    """Given."""


@final
@dataclass(frozen=True, eq=False)
class Table(Definition):
    """Constant numbers, in the order of its axes."""

    numbers: tuple[float, ...]


@final
@dataclass(frozen=True, eq=False)
class Map(Definition):
    """An expression of its axes."""

    expression: Expression

    @property
    def bodies(self) -> tuple[Region, ...]:
        """One loop an axis."""
        return (Region((0,) * len(self.shape), self.shape, self.expression),)


@final
@dataclass(frozen=True, eq=False)
class Reduce(Definition):
    """An expression of its axes and one more, the last, of `extent` elements, reduced over that one."""

    reduction: Reduction
    extent: int
    expression: Expression

    @property
    def bodies(self) -> tuple[Region, ...]:
        """One loop an axis, and one for what is reduced."""
        return (Region((0,) * len(self.shape), (*self.shape, self.extent), self.expression),)


@final
@dataclass(frozen=True, eq=False)
class Assemble(Definition):
    """Regions, written one after the other."""

    regions: tuple[Region, ...]

    @property
    def bodies(self) -> tuple[Region, ...]:
        """The regions."""
        return self.regions


@final
@dataclass(frozen=True, eq=False)
class Reshape(Definition):
    """The numbers of `base` in the same order, under another shape."""

    base: Definition

    def operands(self) -> Iterator[Definition]:
        """The base."""
        yield self.base


KINDS = (Input, Table, Map, Reduce, Assemble, Reshape)
COMPUTED = (Map, Reduce, Assemble)
"""What loops compute."""


class Value(NamedTuple):
    """A tensor without a definition of its own: its shape, and what it is at every index."""

    shape: Shape
    expression: Expression

    def at(self, shape: Shape) -> Expression:
        """Broadcast to `shape`."""
        offset = len(shape) - len(self.shape)
        mapping = [Index(-1, 0, 0) if n == 1 else Index(a + offset) for a, n in enumerate(self.shape)]
        return substitute(self.expression, mapping)


def whole(definition: Definition) -> Value:
    """All of a definition."""
    return Value(definition.shape, Load(definition, identity(definition.shape)))


def upstream(definitions: Iterable[Definition], given: Collection[Definition] = ()) -> set[Definition]:
    """Everything that `definitions` are computed from, and they themselves, as far as what is `given`."""
    seen, queue = set[Definition](), list(definitions)
    while queue:
        definition = queue.pop()
        if definition not in seen:
            seen.add(definition)
            queue.extend(() if definition in given else definition.operands())
    return seen


def behind(values: Iterable[Value], given: Collection[Definition] = ()) -> set[Definition]:
    """Everything that values are computed from, as far as what is `given`."""
    return upstream((d for v in values for d in loads(v.expression)), given)


def volume(shape: Sequence[int]) -> int:
    """Number of elements of a shape."""
    total = 1
    for size in shape:
        total *= size
    return total


def loads(expression: Expression) -> Iterator[Definition]:
    """Every definition that an expression reads, with repetitions."""
    return (load.definition for load in load_nodes(expression))


def load_nodes(expression: Expression) -> Iterator[Load]:
    """Every load of an expression."""
    if isinstance(expression, Load):
        yield expression
    elif isinstance(expression, Apply):
        for argument in expression.arguments:
            yield from load_nodes(argument)


def functions(expression: Expression) -> Iterator[str]:
    """The names of all functions in an expression, with repetitions."""
    if isinstance(expression, Apply):
        yield expression.function
        for argument in expression.arguments:
            yield from functions(argument)


def axes(expression: Expression) -> frozenset[int]:
    """The axes that an expression depends on."""
    return frozenset(index.axis for load in load_nodes(expression) for index in load.index if index.axis >= 0)


def identity(shape: Shape) -> tuple[Index, ...]:
    """Every axis in its place; an axis of one element is no axis."""
    return tuple(Index(-1, 0, 0) if size == 1 else Index(axis) for axis, size in enumerate(shape))


def substitute(expression: Expression, mapping: Sequence[Index]) -> Expression:
    """The expression with axis `a` replaced by `mapping[a]`."""
    if isinstance(expression, Load):
        return Load(expression.definition, tuple(_compose(index, mapping) for index in expression.index))
    if isinstance(expression, Apply):
        return Apply(expression.function, tuple(substitute(a, mapping) for a in expression.arguments))
    return expression


def _compose(index: Index, mapping: Sequence[Index]) -> Index:
    if index.axis < 0:
        return index
    inner = mapping[index.axis]
    start = index.start + index.step * inner.start
    return Index(-1, 0, start) if inner.axis < 0 else Index(inner.axis, index.step * inner.step, start)


def sort_key(expression: Expression) -> Key:
    """An order that does not depend on how an expression came about."""
    if isinstance(expression, Load):
        return (1, expression.definition.serial, expression.index)
    if isinstance(expression, Apply):
        return (2, expression.function, tuple(sort_key(a) for a in expression.arguments))
    return (0, expression.value)
