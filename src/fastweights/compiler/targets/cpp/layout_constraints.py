"""What the rest of a step asks of how a definition is computed and where it lies."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from fastweights.compiler.ir.nodes import Definition, Reduce, Reshape, loads


class Demands(NamedTuple):
    """What must lie in memory in the order of its axes, since it is read under another shape; and what must be computed
    once, since an extremum of it is compared with it: twice might round differently."""

    in_order: frozenset[Definition]
    once: frozenset[Definition]

    def of(self, later: Mapping[Definition, Definition]) -> "Demands":
        """The same asked of what stands for a definition in the next step as well."""
        return Demands(*(asked | {later[d] for d in asked if d in later} for asked in self))


def demands(definitions: Iterable[Definition]) -> Demands:
    """What all of them ask of each other."""
    found = list(definitions)
    extrema = [d for d in found if isinstance(d, Reduce) and d.reduction != "sum"]
    bases = frozenset(d.base for d in found if isinstance(d, Reshape))
    return Demands(bases, frozenset(read for d in extrema for read in loads(d.expression)))
