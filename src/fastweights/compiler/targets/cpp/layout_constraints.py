"""Constraints on the memory layout and the inlining of nodes, which follow from the nodes that read them."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from fastweights.compiler.ir.nodes import Node, Reduce, Reshape, loads


class Constraints(NamedTuple):
    """Nodes that must be in memory `in_order`, because a reshape reads them, and nodes that are computed `once`.

    The gradient of an extremum compares the extremum with its operands. If these were computed twice, rounding might
    differ between the two.
    """

    in_order: frozenset[Node]
    once: frozenset[Node]

    def extended(self, later: Mapping[Node, Node]) -> "Constraints":
        """The constraints with the same ones for the nodes of the next time step, given by the nodes of this one."""
        return Constraints(*(nodes | {later[d] for d in nodes if d in later} for nodes in self))


def constraints(nodes: Iterable[Node]) -> Constraints:
    """The constraints among some nodes."""
    nodes = list(nodes)
    extrema = [d for d in nodes if isinstance(d, Reduce) and d.reduction != "sum"]
    bases = frozenset(d.base for d in nodes if isinstance(d, Reshape))
    return Constraints(bases, frozenset(read for d in extrema for read in loads(d.expression)))
