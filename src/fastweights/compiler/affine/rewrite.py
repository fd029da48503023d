"""Rewrites expressions with everything that they are computed from."""

from collections.abc import Callable, Mapping

from fastweights.compiler.ir.nodes import (
    Apply,
    Assemble,
    Expression,
    Load,
    Map,
    Node,
    Reduce,
    Region,
    Reshape,
    Value,
    loads,
    substitute,
    upstream,
    whole,
)


def rebuilt(node: Node, rewrite: Callable[[Expression], Expression]) -> Node:
    """The node with its expressions rewritten."""
    shape, line = node.shape, node.line
    match node:
        case Map(_, expression):
            return Map(shape, rewrite(expression), line=line)
        case Reduce(_, reduction, extent, expression):
            return Reduce(shape, reduction, extent, rewrite(expression), line=line)
        case Assemble(_, regions):
            parts = tuple(Region(start, part, rewrite(e)) for start, part, e in regions)
            return Assemble(shape, parts, line=line)
        case Reshape(_, base):
            inside = rewrite(whole(base).expression)
            is_whole = isinstance(inside, Load) and inside == whole(inside.node).expression
            return Reshape(shape, inside.node if is_whole else Map(base.shape, inside, line=line), line=line)  # type: ignore[union-attr]
    return node


class Inliner:
    """Replaces inputs by the values that they stand for."""

    def __init__(self, values: Mapping[Node, Value]) -> None:
        self.values = values
        self._rebuilt: dict[Node, Node] = {}

    def inlined(self, expression: Expression) -> Expression:
        """An expression that reads none of the inputs."""
        if not self.values.keys() & upstream(loads(expression)):
            return expression
        if isinstance(expression, Apply):
            return Apply(expression.function, tuple(map(self.inlined, expression.arguments)))
        assert isinstance(expression, Load)
        node, index = expression.node, expression.index
        if node in self.values:
            return substitute(self.inlined(self.values[node].expression), index)
        if node not in self._rebuilt:
            self._rebuilt[node] = rebuilt(node, self.inlined)
        return Load(self._rebuilt[node], index)
