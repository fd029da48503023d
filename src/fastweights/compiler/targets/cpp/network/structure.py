"""The structure of a group of loops: two groups with the same structure share a function of the source text."""

from collections.abc import Hashable

from fastweights.compiler.ir.network import Loops
from fastweights.compiler.ir.nodes import (
    ConstantTensor,
    Input,
    Node,
    Reduce,
    Reshape,
    structure_of,
)


def structure(loops: Loops) -> tuple[Hashable, list[Node]]:
    """A key without the names of buffers, and the given nodes in the order of the function's arguments."""
    numbering = _Numbering(loops)
    key = tuple((value.shape, structure_of(value.expression, numbering.node)) for _, value in loops.results)
    return (key, tuple(numbering.keys)), numbering.placeholders


class _Numbering:
    """Numbers nodes in the order in which the results first read them."""

    def __init__(self, loops: Loops) -> None:
        self.loops = loops
        self.numbers: dict[Node, int] = {}
        self.keys: list[Hashable] = []
        self.placeholders: list[Node] = []

    def node(self, node: Node) -> int:
        """The number of a node."""
        if node not in self.numbers:
            self.numbers[node] = number = len(self.numbers)
            self.keys.append(None)
            self.keys[number] = (node.shape, self._definition(node))
        return self.numbers[node]

    def _definition(self, node: Node) -> Hashable:
        if node in self.loops.placeholders:
            self.placeholders.append(node)
            return "given"
        match node:
            case ConstantTensor(numbers=numbers):
                return numbers
            case Reshape(base=base):
                return "reshape", self.node(base)
            case Reduce(reduction=reduction, extent=extent):
                head: tuple[Hashable, ...] = (reduction, extent)
            case _:
                head = ()
        assert not isinstance(node, Input)
        return head, tuple((r.start, r.shape, structure_of(r.expression, self.node)) for r in node.bodies)
