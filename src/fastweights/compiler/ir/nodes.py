"""Tensor expressions: every tensor of a step is a `Node`, an expression in the indices of its axes.

The language is closed. It has six kinds of nodes, three kinds of expressions, three reductions and the functions in
`functions.py`. All records are frozen. `verify.py` checks them, `interpret.py` computes them and `show.py` prints them.
"""

from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Literal, NamedTuple, final

Shape = tuple[int, ...]
Key = tuple[object, ...]
Reduction = Literal["sum", "max", "min"]


class Index(NamedTuple):
    """An affine index `step * axis + start`. The index is constant for axis -1."""

    axis: int
    step: int = 1
    start: int = 0


@dataclass(frozen=True)
class Constant:
    """A number that is the same at every index."""

    value: float


@dataclass(frozen=True)
class Load:
    """An element of a node, with one `Index` per axis."""

    node: "Node"
    index: tuple[Index, ...]


@dataclass(frozen=True)
class Apply:
    """An elementwise function of `functions.FUNCTIONS`."""

    function: str
    arguments: tuple["Expression", ...]


Expression = Constant | Load | Apply


class Region(NamedTuple):
    """A box inside a node, and the expression that is written there."""

    start: Shape
    shape: Shape
    expression: Expression


@dataclass(frozen=True, eq=False)
class Node:
    """A tensor of one time step. Nodes are compared by identity.

    `line` is the line of the cell that computes the tensor. `serial` numbers all nodes in the order of their creation,
    so that operands have smaller numbers than the nodes that read them.
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
        """Whether the node has at least two axes with more than one element."""
        return sum(n > 1 for n in self.shape) > 1

    @property
    def bodies(self) -> tuple[Region, ...]:
        """The loop bodies of the node. The shape of each is that of its loops."""
        return ()

    def operands(self) -> Iterator["Node"]:
        """The operands of the node, with repetitions."""
        for body in self.bodies:
            yield from loads(body.expression)


@final
@dataclass(frozen=True, eq=False)
class Input(Node):
    """An input of the step."""


@final
@dataclass(frozen=True, eq=False)
class ConstantTensor(Node):
    """A constant tensor, whose numbers are in the order of its axes."""

    numbers: tuple[float, ...]


@final
@dataclass(frozen=True, eq=False)
class Map(Node):
    """An expression of the node's axes."""

    expression: Expression

    @property
    def bodies(self) -> tuple[Region, ...]:
        """A loop per axis."""
        return (Region((0,) * len(self.shape), self.shape, self.expression),)


@final
@dataclass(frozen=True, eq=False)
class Reduce(Node):
    """A reduction of an expression over an additional last axis with `extent` elements."""

    reduction: Reduction
    extent: int
    expression: Expression

    @property
    def bodies(self) -> tuple[Region, ...]:
        """A loop per axis, and one for the reduced axis."""
        return (Region((0,) * len(self.shape), (*self.shape, self.extent), self.expression),)


@final
@dataclass(frozen=True, eq=False)
class Assemble(Node):
    """Regions that are written one after the other."""

    regions: tuple[Region, ...]

    @property
    def bodies(self) -> tuple[Region, ...]:
        """The regions."""
        return self.regions


@final
@dataclass(frozen=True, eq=False)
class Reshape(Node):
    """The numbers of `base` in the same order, under another shape."""

    base: Node

    def operands(self) -> Iterator[Node]:
        """The base of the reshape."""
        yield self.base


KINDS = (Input, ConstantTensor, Map, Reduce, Assemble, Reshape)
COMPUTED = (Map, Reduce, Assemble)
"""The nodes that loops compute."""


class Value(NamedTuple):
    """A tensor without a node: a shape, and an expression in its axes."""

    shape: Shape
    expression: Expression

    def at(self, shape: Shape) -> Expression:
        """The expression broadcast to `shape`."""
        offset = len(shape) - len(self.shape)
        mapping = [Index(-1, 0, 0) if n == 1 else Index(a + offset) for a, n in enumerate(self.shape)]
        return substitute(self.expression, mapping)


def whole(node: Node) -> Value:
    """The value of a whole node."""
    return Value(node.shape, Load(node, identity(node.shape)))


def upstream(nodes: Iterable[Node], placeholders: Collection[Node] = ()) -> set[Node]:
    """All nodes that `nodes` are computed from, and `nodes` themselves. Operands of placeholders are left out."""
    visited, queue = set[Node](), list(nodes)
    while queue:
        node = queue.pop()
        if node not in visited:
            visited.add(node)
            queue.extend(() if node in placeholders else node.operands())
    return visited


def ancestors(values: Iterable[Value], placeholders: Collection[Node] = ()) -> set[Node]:
    """All nodes that values are computed from. Operands of `placeholders` nodes are left out."""
    return upstream((d for v in values for d in loads(v.expression)), placeholders)


def volume(shape: Sequence[int]) -> int:
    """Number of elements of a shape."""
    total = 1
    for size in shape:
        total *= size
    return total


def loads(expression: Expression) -> Iterator[Node]:
    """Every node that an expression reads, with repetitions."""
    return (load.node for load in load_nodes(expression))


def structure_of(expression: Expression, key: Callable[[Node], Hashable]) -> Hashable:
    """A key of an expression: equal for expressions that differ only in nodes with equal keys."""
    match expression:
        case Constant(value):
            return repr(value)
        case Load(node, index):
            return key(node), index
        case Apply(function, arguments):
            return function, tuple(structure_of(argument, key) for argument in arguments)


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
    """The index of every axis by itself. The index of an axis with one element is constant."""
    return tuple(Index(-1, 0, 0) if size == 1 else Index(axis) for axis, size in enumerate(shape))


def substitute(expression: Expression, mapping: Sequence[Index]) -> Expression:
    """The expression with axis `a` replaced by `mapping[a]`."""
    if isinstance(expression, Load):
        return Load(expression.node, tuple(_compose(index, mapping) for index in expression.index))
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
    """A key that sorts expressions, and does not depend on the order of construction."""
    if isinstance(expression, Load):
        return (1, expression.node.serial, expression.index)
    if isinstance(expression, Apply):
        return (2, expression.function, tuple(sort_key(a) for a in expression.arguments))
    return (0, expression.value)
