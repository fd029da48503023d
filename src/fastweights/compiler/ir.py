"""Tensor expressions: every tensor of a step is a `Definition`, an expression in the indices of its own axes."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import NamedTuple

Shape = tuple[int, ...]
Key = tuple[object, ...]


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
    """An element of another definition, one `Index` an axis of it."""

    definition: "Definition"
    index: tuple[Index, ...]


@dataclass(frozen=True)
class Apply:
    """A function of the runtime header, elementwise."""

    function: str
    arguments: tuple["Expression", ...]


Expression = Constant | Load | Apply


class Region(NamedTuple):
    """A box inside a definition, and what is written there."""

    start: Shape
    shape: Shape
    expression: Expression


@dataclass(eq=False)
class Definition:
    """A tensor of one step.

    kind: "input" (given), "table" (constant numbers), "map" (an expression of its axes), "reduce" (one reduced over one
    axis more, the last), "assemble" (regions written one after the other) or "alias" (`base` under another shape).
    """

    kind: str
    shape: Shape
    expression: Expression | None = None
    reduction: str = ""
    extent: int = 1
    regions: tuple[Region, ...] = ()
    base: "Definition | None" = None
    numbers: tuple[float, ...] = ()
    line: str = ""
    contiguous: bool = False
    """Whether an alias needs its numbers in the order of its axes."""
    once: bool = False
    """Whether its numbers are compared with each other: computing them twice might round them differently."""
    serial: int = field(default_factory=count().__next__)

    @property
    def size(self) -> int:
        """Number of elements."""
        return volume(self.shape)

    @property
    def domain(self) -> Shape:
        """The axes that its loop runs over."""
        return (*self.shape, self.extent) if self.kind == "reduce" else self.shape

    def operands(self) -> Iterator["Definition"]:
        """What it is computed from."""
        if self.base is not None:
            yield self.base
        for region in self.regions:
            yield from loads(region.expression)
        if self.expression is not None:
            yield from loads(self.expression)


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
