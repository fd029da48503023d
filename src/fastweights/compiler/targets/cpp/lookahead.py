"""Software pipelining of the first reads of a matrix: the previous time step computes them while it stores the matrix.

The sum `W[t-1] k[t]` needs only the inputs of step t. So step t - 1 computes it while the elements of the new W are in
registers, and one pass over W is enough per step.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import chain

from fastweights.compiler.ir.nodes import (
    COMPUTED,
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
    ancestors,
    identity,
    loads,
    upstream,
    whole,
)

SMALL = 4
"""A sum is computed ahead if it is at least this many times smaller than its matrix."""


def first_reads(
    values: Iterable[Value],
    state: Collection[Node],
    placeholders: Collection[Node],
    matrices: Collection[Node],
) -> list[Node]:
    """The small sums over a matrix of `state` that need no other sum over one of the `matrices`."""
    sums = [d for d in ancestors(values, placeholders) if isinstance(d, Reduce) and d.reduction == "sum"]
    return sorted((d for d in sums if _is_first(d, state, placeholders, matrices)), key=lambda d: d.serial)


def _is_first(
    node: Node,
    state: Collection[Node],
    placeholders: Collection[Node],
    matrices: Collection[Node],
) -> bool:
    operands = set(node.operands())
    read = operands.intersection(matrices)
    small = all(SMALL * node.size <= matrix.size for matrix in read)
    return small and not read.isdisjoint(state) and upstream(operands - read, placeholders).isdisjoint(matrices)


def shared_operands(
    reads: Collection[Node], values: Sequence[Value], placeholders: Collection[Node], moves: Collection[Node]
) -> list[Node]:
    """The operands of the first `reads` that the rest of the step reads as well and that are worth handing on.

    The previous step computes them for the reads anyway. `moves` are the tensors that differ between steps.
    """
    on_the_way = upstream(reads, placeholders).difference(placeholders, reads)
    rest = ancestors(values, {*placeholders, *reads}).difference(placeholders, reads)
    read_later = set(chain.from_iterable(d.operands() for d in rest - on_the_way))
    read_later.update(chain.from_iterable(loads(v.expression) for v in values))
    return sorted((d for d in read_later & on_the_way if _is_work(d, moves)), key=lambda d: d.serial)


def _is_work(node: Node, moves: Collection[Node]) -> bool:
    """Whether computing a node again costs more than handing it on. A reshape has no memory of its own to hand on."""
    behind_it = upstream([node], moves)
    changes = not behind_it.isdisjoint(moves)
    return isinstance(node, COMPUTED) and changes and any(isinstance(d, Reduce) for d in behind_it)


def as_nodes(values: Sequence[Value]) -> list[Value]:
    """The values, each as a separate node, so that other nodes can read what was stored."""
    used, result = set[Node](), list[Value]()
    for shape, expression in values:
        node = expression.node if isinstance(expression, Load) else None
        is_whole = node is not None and node.shape == shape and expression == Load(node, identity(shape))
        if node is None or not is_whole or node in used or not isinstance(node, COMPUTED):
            node = Map(shape, expression)
        used.add(node)
        result.append(whole(node))
    return result


class NextStepNodes:
    """Renames the nodes of this time step to those of the next one. `instead` has the replacements of given nodes."""

    def __init__(self, instead: Mapping[Node, Node]) -> None:
        self.known = dict(instead)

    def node(self, old: Node) -> Node:
        """The node of the next step. A node without operands that change is the same in both steps."""
        if old not in self.known:
            self.known[old] = self._moved(old) if self._changes(old) else old
        return self.known[old]

    def _changes(self, old: Node) -> bool:
        return not upstream([old], self.known).isdisjoint(self.known)

    def _moved(self, old: Node) -> Node:
        match old:
            case Map(shape, expression):
                return Map(shape, self._expression(expression), line=old.line)
            case Reduce(shape, reduction, extent, expression):
                return Reduce(shape, reduction, extent, self._expression(expression), line=old.line)
            case Assemble(shape, regions):
                moved = tuple(Region(r.start, r.shape, self._expression(r.expression)) for r in regions)
                return Assemble(shape, moved, line=old.line)
            case Reshape(shape, base):
                return Reshape(shape, self.node(base), line=old.line)
        raise AssertionError("a placeholder has no operands that change")

    def _expression(self, old: Expression) -> Expression:
        if isinstance(old, Load):
            return Load(self.node(old.node), old.index)
        if isinstance(old, Apply):
            return Apply(old.function, tuple(self._expression(a) for a in old.arguments))
        return old
