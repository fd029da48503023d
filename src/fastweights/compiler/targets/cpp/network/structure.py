"""The structure of a group of loops: two groups with the same structure share a function of the source text."""

from collections.abc import Hashable

from fastweights.compiler.ir.network import Loops
from fastweights.compiler.ir.nodes import (
    Apply,
    Constant,
    ConstantTensor,
    Expression,
    Input,
    Load,
    Node,
    Reduce,
    Reshape,
)


def structure(loops: Loops) -> tuple[Hashable, list[Node]]:
    """A key without the names of buffers, and the given nodes in the order of the function's arguments."""
    numbering = _Numbering(loops)
    key = tuple((value.shape, numbering.expression(value.expression)) for _, value in loops.results)
    return (key, tuple(numbering.keys)), numbering.given


class _Numbering:
    """Numbers nodes in the order in which the results first read them."""

    def __init__(self, loops: Loops) -> None:
        self.loops = loops
        self.numbers: dict[Node, int] = {}
        self.keys: list[Hashable] = []
        self.given: list[Node] = []

    def expression(self, expression: Expression) -> Hashable:
        match expression:
            case Constant(value):
                return repr(value)
            case Load(node, index):
                return self._node(node), index
            case Apply(function, arguments):
                return function, tuple(map(self.expression, arguments))

    def _node(self, node: Node) -> int:
        if node not in self.numbers:
            self.numbers[node] = number = len(self.numbers)
            self.keys.append(None)
            self.keys[number] = (node.shape, self._definition(node))
        return self.numbers[node]

    def _definition(self, node: Node) -> Hashable:
        if node in self.loops.given:
            self.given.append(node)
            return "given"
        match node:
            case ConstantTensor(numbers=numbers):
                return numbers
            case Reshape(base=base):
                return "reshape", self._node(base)
            case Reduce(reduction=reduction, extent=extent):
                head: tuple[Hashable, ...] = (reduction, extent)
            case _:
                head = ()
        assert not isinstance(node, Input)
        return head, tuple((r.start, r.shape, self.expression(r.expression)) for r in node.bodies)
