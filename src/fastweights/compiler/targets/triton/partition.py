"""Decides whether several programs can share a head, each with some rows of the state.

That is possible if rows never meet. Each node of a step and its gradient is one of four kinds:

- Free: computed from inputs and params only, so that a program can have all of it or its own rows.
- Same: every program has all of it.
- Rows: every program has its own rows.
- Part: every program has a part of a sum over rows. It may only be summed further, up to a gradient, and the parts
  are added when all programs have ended.

If any other node reads a sum over rows, one program must have the whole head.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

from fastweights.compiler.ir.nodes import (
    Apply,
    Constant,
    ConstantTensor,
    Expression,
    Input,
    Load,
    Map,
    Node,
    Reduce,
    Value,
    load_nodes,
)
from fastweights.compiler.ir.step import Step
from fastweights.compiler.targets.triton.access_patterns import is_slow, is_whole, real

FREE, SAME, PART = "free", "same", "part"
Kind = str | int
"""One of these, or the axis along which the rows are divided."""
ZERO = Constant(0.0)
MOST = 4
"""Largest number of tensors in a state for which a partition is tried."""


class RowsMixed(Exception):
    """Rows meet: no partition along these axes is possible."""


@dataclass(frozen=True)
class Cut:
    """A partition of a head: the divided axis of every tensor of the state, if any, and the kind of every node."""

    size: int
    leaves: dict[str, int | None]
    kinds: dict[Node, Kind]

    def kind(self, value: Value) -> Kind:
        """The kind of a value."""
        return Kinds(self.kinds).expression(value.expression, value.shape)


def cut(step: Step) -> Cut | None:
    """The partition with the least work per program; None if rows meet."""
    for size, leaves in _candidates(step):
        try:
            return Cut(size, leaves, _kinds(step, leaves))
        except RowsMixed:
            continue
    return None


def _candidates(step: Step) -> Iterator[tuple[int, dict[str, int | None]]]:
    """Partitions along an axis of the largest tensor. Those that divide the most tensors come first."""
    shapes = {name: d.shape for name, d in step.state.items()}
    largest = max(step.state, key=lambda name: step.state[name].size)
    if len(shapes) > MOST or len(real(shapes[largest])) < 2:
        return
    for axis in real(shapes[largest]):
        size = shapes[largest][axis]
        options = [
            [axis] if name == largest else [*(a for a in real(shape) if shape[a] == size), None]
            for name, shape in shapes.items()
        ]
        partitions = [dict(zip(shapes, axes, strict=True)) for axes in product(*options)]
        yield from ((size, axes) for axes in sorted(partitions, key=lambda axes: list(axes.values()).count(None)))


def _kinds(step: Step, leaves: Mapping[str, int | None]) -> dict[Node, Kind]:
    """The kinds of all nodes, if a step preserves the kinds of the state."""
    first: dict[Node, Kind] = {}
    for name, axis in leaves.items():
        first[step.state[name]] = SAME if axis is None else axis
        first[step.d_state[name]] = PART if axis is None else axis
    kinds = Kinds(first)
    for name, value in step.new_state.items():
        _check(kinds.expression(value.expression, value.shape), leaves[name], (FREE, SAME))
    _check(kinds.expression(step.y.expression, step.y.shape), -1, (FREE, SAME))
    for name, value in step.gradients["state"].items():
        _check(kinds.expression(value.expression, value.shape), leaves[name], (FREE, SAME, PART))
    for kind in ("inputs", "params"):
        for value in step.gradients[kind].values():
            kinds.expression(value.expression, value.shape)
    return kinds.known


def _check(kind: Kind, axis: int | None, whole: Sequence[str]) -> None:
    """Raises `RowsMixed` unless a divided tensor has its own or free rows, and an undivided one is whole."""
    rows = isinstance(kind, int)
    if axis is None and (rows or kind not in whole):
        raise RowsMixed
    if axis is not None and axis >= 0 and kind not in (axis, FREE):
        raise RowsMixed
    if axis == -1 and not rows and kind not in whole:
        raise RowsMixed


class Kinds:
    """Derives the kind of every node from the kinds of the state and its gradient."""

    def __init__(self, known: Mapping[Node, Kind]) -> None:
        self.known = dict(known)

    def node(self, node: Node) -> Kind:
        """The kind of a node."""
        if node not in self.known:
            self.known[node] = self._made(node)
        return self.known[node]

    def _made(self, node: Node) -> Kind:
        match node:
            case Input() | ConstantTensor():
                return FREE
            case Map(shape, expression):
                return self.expression(expression, shape)
            case Reduce(shape, reduction, extent, expression) if not is_slow(node):
                kind = self.expression(expression, (*shape, extent))
                kind = PART if kind == len(shape) else kind
                if kind != PART or reduction == "sum":
                    return kind
        raise RowsMixed

    def expression(self, expression: Expression, domain: Sequence[int]) -> Kind:
        """The kind of an expression. For rows, it is an axis of the domain."""
        if isinstance(expression, Constant):
            return FREE
        if isinstance(expression, Load):
            return self._load(expression, domain)
        kinds = [self.expression(a, domain) for a in expression.arguments]
        rows = {kind for kind in kinds if isinstance(kind, int)}
        if PART in kinds:
            return _of_parts(expression, kinds, bool(rows))
        if not rows:
            return SAME if SAME in kinds else FREE
        (axis, *others) = rows
        if others or self._is_read_along(expression, axis):
            raise RowsMixed
        return axis

    def _load(self, load: Load, domain: Sequence[int]) -> Kind:
        if not is_whole(load, domain):
            raise RowsMixed
        kind = self.node(load.node)
        return load.index[kind].axis if isinstance(kind, int) else kind

    def _is_read_along(self, expression: Expression, axis: int) -> bool:
        """Whether an expression reads rows of a node that every program has as a whole in registers."""
        return not all(
            self._is_had_in_rows(load.node, place)
            for load in load_nodes(expression)
            for place, index in enumerate(load.index)
            if index.axis == axis
        )

    def _is_had_in_rows(self, node: Node, axis: int) -> bool:
        """Whether a program can compute some rows of a node alone."""
        if self.node(node) != SAME:
            return True
        computed = isinstance(node, Map | Reduce)
        return computed and not any(self._is_read_along(body.expression, axis) for body in node.bodies)


def _of_parts(expression: Apply, kinds: Sequence[Kind], rows: bool) -> Kind:
    """The kind of a function of partial sums, which must be linear in them."""
    branches = zip(kinds[1:], expression.arguments[1:], strict=True)
    linear = {
        **dict.fromkeys(("add", "sub", "neg", "identity"), True),
        "mul": kinds.count(PART) == 1,
        "div": kinds[-1] != PART,
        "where": kinds[0] != PART and all(kind == PART or branch == ZERO for kind, branch in branches),
    }
    if rows or not linear.get(expression.function, False):
        raise RowsMixed
    return PART
