"""Splits flattened axes: a product with a flattened state is one with the state itself."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from fastweights.compiler.affine.rewrite import rebuilt
from fastweights.compiler.ir.builder import ExpressionBuilder
from fastweights.compiler.ir.nodes import (
    Apply,
    Assemble,
    Expression,
    Index,
    Input,
    Load,
    Map,
    Node,
    Reduce,
    Region,
    Reshape,
    Shape,
    Value,
    ancestors,
    load_nodes,
    loads,
    substitute,
    upstream,
    volume,
    whole,
)
from fastweights.compiler.ir.step import Forward
from fastweights.compiler.operations.views import viewed


class Unseparable(Exception):
    """A flattened axis is read in part, or in another order."""


def unflattened(step: Forward) -> Forward:
    """The same step. Where axes of a state are flattened, the loops run along the axes themselves."""
    values = [*step.new_state.values(), step.y]
    if not any(isinstance(d, Reshape) for d in ancestors(values)):
        return step
    unflattener = Unflattener([*step.state.values(), *step.after.values()])
    new_state = {name: unflattener.value(value) for name, value in step.new_state.items()}
    return replace(step, new_state=new_state, y=unflattener.value(step.y))


class Unflattener:
    """Rewrites the nodes that depend on states. A node with flattened axes becomes the reshape of one without."""

    def __init__(self, states: Sequence[Input]) -> None:
        self.builder = ExpressionBuilder()
        self.states = {*states}
        self._made: dict[object, Node] = {d: d for d in states}
        """The rewritten nodes, by node, or by node and factors."""

    def value(self, value: Value) -> Value:
        """The value, computed without flattened states where that is possible."""
        if self.states.isdisjoint(upstream(loads(value.expression))):
            return value
        return whole(self._node(Map(value.shape, value.expression)))

    def _node(self, node: Node) -> Node:
        if node not in self._made:
            self._made[node] = self._rebuilt(node) if self._depends(node) or isinstance(node, Reshape) else node
        return self._made[node]

    def _depends(self, node: Node) -> bool:
        return not self.states.isdisjoint(upstream([node]))

    def _rebuilt(self, node: Node) -> Node:
        shape, line = node.shape, node.line
        match node:
            case Reshape(_, base):
                made = self._looped(base, dict(_flattened(base.shape, shape)))
                return _stacked(made, shape, line) or self._reshaped(made, shape, line)
            case Map() | Reduce():
                return self._looped(node, {})
        return rebuilt(node, self._rewritten)

    def _rewritten(self, expression: Expression) -> Expression:
        if isinstance(expression, Apply):
            return Apply(expression.function, tuple(map(self._rewritten, expression.arguments)))
        return Load(self._node(expression.node), expression.index) if isinstance(expression, Load) else expression

    def _looped(self, node: Node, factors: Mapping[int, Shape]) -> Node:
        """A node whose loops with `factors` and along flattened states are split, unless one is read in part."""
        key = node, tuple(factors.items())
        if key not in self._made:
            self._made[key] = self._separated(node, factors) if isinstance(node, Map | Reduce) else self._node(node)
        return self._made[key]

    def _separated(self, node: Map | Reduce, factors: Mapping[int, Shape]) -> Node:
        sizes, expression = node.bodies[0].shape, self._rewritten(node.expression)
        factors = {**self._factors(sizes, expression), **factors}
        try:
            inside = self._on_factors(expression, sizes, factors) if factors else expression
        except Unseparable:
            factors, inside = {}, expression
        split = [factors.get(a, (n,)) for a, n in enumerate(sizes)]
        shape = tuple(n for part in split[: len(node.shape)] for n in part)
        if isinstance(node, Map):
            made: Node = Map(shape, inside, line=node.line)
        elif factors:
            made = self._summed(node, shape, split[-1], inside)
        else:
            made = Reduce(shape, node.reduction, node.extent, inside, line=node.line)
        return self._reshaped(made, node.shape, node.line)

    def _factors(self, sizes: Shape, expression: Expression) -> dict[int, Shape]:
        """The sizes that flattened axes of a state have by themselves, by the loop that runs along them."""
        factors_by_loop = dict[int, Shape]()
        for load in load_nodes(expression):
            if isinstance(load.node, Reshape) and self._depends(load.node):
                for axis, factors in _flattened(load.node.shape, load.node.base.shape):
                    if load.index[axis].axis >= 0:
                        factors_by_loop.setdefault(load.index[axis].axis, factors)
        return factors_by_loop

    def _on_factors(self, expression: Expression, sizes: Shape, factors: Mapping[int, Shape]) -> Expression:
        """An expression over loops that are split."""
        if isinstance(expression, Apply):
            parts = (self._on_factors(a, sizes, factors) for a in expression.arguments)
            return Apply(expression.function, tuple(parts))
        if not isinstance(expression, Load):
            return expression
        first = [sum(len(factors.get(b, (0,))) for b in range(a)) for a in range(len(sizes))]
        shape, index = list[int](), list[Index]()
        for i, n in zip(expression.index, expression.node.shape, strict=True):
            if i.axis in factors and (i != Index(i.axis) or n != sizes[i.axis]):
                raise Unseparable
            sizes_of_axis = factors.get(i.axis, (n,))
            shape += sizes_of_axis
            places = range(len(sizes_of_axis))
            index += [i if i.axis < 0 else i._replace(axis=first[i.axis] + place) for place in places]
        own = {a: factors[i.axis] for a, i in enumerate(expression.index) if i.axis in factors}
        node = self._looped(expression.node, own) if own and not self._depends(expression.node) else expression.node
        return substitute(self._viewed(node, tuple(shape)).expression, index)

    def _summed(self, node: Reduce, shape: Shape, factors: Shape, inside: Expression) -> Node:
        """A reduction over the last axis as one over each of its factors."""
        self.builder.line, sizes = node.line, (*shape, *factors)
        for axis in reversed(range(len(shape), len(sizes))):
            inside = self.builder.reduce(node.reduction, sizes, inside, axis)
        return Map(shape, inside, line=node.line)

    def _reshaped(self, node: Node, shape: Shape, line: str) -> Node:
        value = self._viewed(node, shape)
        is_whole = isinstance(value.expression, Load) and value == whole(value.expression.node)
        return value.expression.node if is_whole else Map(shape, value.expression, line=line)  # type: ignore[union-attr]

    def _viewed(self, node: Node, shape: Shape) -> Value:
        """The numbers of a node under another shape. A reshape of a reshape is one."""
        return viewed(self.builder, whole(node.base if isinstance(node, Reshape) else node), shape)


def _flattened(shape: Shape, base: Shape) -> Iterator[tuple[int, Shape]]:
    """The axes of a shape that are several axes of the base, with the sizes of these."""
    left = [n for n in base if n > 1]
    for axis, size in enumerate(shape):
        factors = list[int]()
        while left and volume(factors) < size:
            factors.append(left.pop(0))
        if volume(factors) != size:
            return
        if len(factors) > 1:
            yield axis, tuple(factors)


def _stacked(node: Node, shape: Shape, line: str) -> Node | None:
    """Regions side by side along one axis as regions of a further axis, as by `torch.stack`; None for other shapes."""
    axis = next((a for a, (n, size) in enumerate(zip(node.shape, shape, strict=False)) if n != size), 0)
    size = shape[axis + 1] if len(shape) == len(node.shape) + 1 else 0
    if not isinstance(node, Assemble) or (*shape[:axis], shape[axis] * size, *shape[axis + 2 :]) != node.shape:
        return None
    if any(part[axis] != size or start[axis] % size for start, part, _ in node.regions):
        return None
    moved = [Index(a + (a >= axis)) for a in range(len(node.shape))]
    regions = (
        Region(
            (*start[:axis], start[axis] // size, 0, *start[axis + 1 :]),
            (*part[:axis], 1, *part[axis:]),
            substitute(expression, moved),
        )
        for start, part, expression in node.regions
    )
    return Assemble(shape, tuple(regions), line=line)
