"""Chooses the tensors that depend on inputs only, and that are computed for all time steps before the loop over time.

The loop then has shorter steps, and the tensors of all steps are computed at once, such as keys after a softmax.
"""

from collections.abc import Collection

from fastweights.compiler.ir.functions import FUNCTIONS
from fastweights.compiler.ir.nodes import (
    Assemble,
    ConstantTensor,
    Input,
    Node,
    Reduce,
    Reshape,
    functions,
    loads,
    upstream,
)
from fastweights.compiler.ir.step import Step
from fastweights.compiler.targets.triton.access_patterns import is_slow


def ahead_of_time(step: Step, in_memory: Collection[Node]) -> list[Node]:
    """The tensors to compute before the loop, in the order in which they are computed.

    Each has a sum or a slow function, and is not larger than the inputs that it replaces. Tensors `in_memory`, and
    those computed from them, stay in the loop.
    """
    search = _Search(step, frozenset(in_memory))
    chosen, visited = set[Node](), set[Node]()
    queue = [d for value in step.results for d in loads(value.expression)]
    while queue:
        node = queue.pop()
        if node not in visited:
            visited.add(node)
            if search.suits(node):
                chosen.add(node)
            else:
                queue.extend(node.operands())
    return sorted(chosen, key=lambda d: d.serial)


class _Search:
    def __init__(self, step: Step, in_memory: frozenset[Node]) -> None:
        self.moving, self.in_memory = frozenset[Node](step.inputs.values()), in_memory
        self.placeholders = self.moving | frozenset[Node](step.params.values())
        self._is_early: dict[Node, bool] = {}

    def suits(self, node: Node) -> bool:
        if node in self.placeholders or not self.is_early(node):
            return False
        behind = upstream([node])
        size = sum(d.size for d in behind & self.moving)
        return node.size <= size and any(map(_is_costly, behind))

    def is_early(self, node: Node) -> bool:
        """Whether a node is computed from inputs and params only, in registers."""
        if node not in self._is_early:
            self._is_early[node] = self._is_made_of_inputs(node)
        return self._is_early[node]

    def _is_made_of_inputs(self, node: Node) -> bool:
        if isinstance(node, Input | ConstantTensor):
            return node in self.placeholders or isinstance(node, ConstantTensor)
        is_in_memory = node in self.in_memory or isinstance(node, Assemble | Reshape) or is_slow(node)
        return not is_in_memory and all(map(self.is_early, node.operands()))


def _is_costly(node: Node) -> bool:
    if isinstance(node, Reduce):
        return True
    return any(FUNCTIONS[name].is_slow for body in node.bodies for name in functions(body.expression))
