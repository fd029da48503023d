"""The smallest tensors that a loop over recurrent states passes on to the other stages."""

from collections.abc import Collection, Iterable

from fastweights.compiler.ir.nodes import Input, Node, Value, loads


def frontier(values: Iterable[Value], sources: Collection[Node], known: Collection[Node]) -> list[Node]:
    """The tensors through which `values` depend on `sources`, in the order in which they are computed.

    Each is computed from `sources` and from `known` inputs only. For example, a loop over a matrix passes on the
    product of the matrix with a vector, and not the matrix.
    """
    search = _Search(frozenset(sources), frozenset(known))
    tensors = {tensor for value in values for node in loads(value.expression) for tensor in search.below(node)}
    return sorted(tensors, key=lambda d: d.serial)


class _Search:
    def __init__(self, sources: frozenset[Node], known: frozenset[Node]) -> None:
        self.sources, self.known = sources, known
        self._inputs: dict[Node, frozenset[Node]] = {}
        self._below: dict[Node, frozenset[Node]] = {}

    def inputs(self, node: Node) -> frozenset[Node]:
        """The inputs that a node is computed from."""
        if node not in self._inputs:
            own = frozenset([node]) if isinstance(node, Input) else frozenset[Node]()
            self._inputs[node] = own.union(*(self.inputs(d) for d in node.operands()))
        return self._inputs[node]

    def below(self, node: Node) -> frozenset[Node]:
        """The tensors for one node. The node itself is one of them only if it is smaller than the alternative."""
        if node not in self._below:
            self._below[node] = self._chosen(node)
        return self._below[node]

    def _chosen(self, node: Node) -> frozenset[Node]:
        inputs = self.inputs(node)
        if node in self.sources or not inputs & self.sources:
            return frozenset([node]) & self.sources
        below = frozenset[Node]().union(*(self.below(d) for d in node.operands()))
        is_known = inputs <= self.sources | self.known
        return frozenset([node]) if is_known and node.size < sum(d.size for d in below) else below
