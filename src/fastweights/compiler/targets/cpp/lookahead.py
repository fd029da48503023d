"""What a step reads off a matrix first, read by the step before while it stores the matrix: one pass instead of two.

`W[t-1] k[t]` needs nothing of step t but its inputs. So step t is given the sums that it would begin with, and makes
those of step t + 1 where it has every element of the new W in a register.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import chain

from fastweights.compiler.ir.nodes import (
    COMPUTED,
    Apply,
    Assemble,
    Definition,
    Expression,
    Load,
    Map,
    Reduce,
    Region,
    Reshape,
    Value,
    behind,
    identity,
    loads,
    upstream,
    whole,
)

SMALL = 4
"""A sum is read ahead if it is this many times smaller than the matrix that it is read off."""


def first_reads(
    values: Iterable[Value],
    state: Collection[Definition],
    given: Collection[Definition],
    matrices: Collection[Definition],
) -> list[Definition]:
    """The small sums over a matrix of `state` that wait for no other sum over one of the `matrices`."""
    found = [d for d in behind(values, given) if isinstance(d, Reduce) and d.reduction == "sum"]
    return sorted((d for d in found if _is_first(d, state, given, matrices)), key=lambda d: d.serial)


def _is_first(
    definition: Definition,
    state: Collection[Definition],
    given: Collection[Definition],
    matrices: Collection[Definition],
) -> bool:
    operands = set(definition.operands())
    read = operands.intersection(matrices)
    small = all(SMALL * definition.size <= matrix.size for matrix in read)
    return small and not read.isdisjoint(state) and upstream(operands - read, given).isdisjoint(matrices)


def handed_on(
    reads: Collection[Definition], values: Sequence[Value], given: Collection[Definition], moves: Collection[Definition]
) -> list[Definition]:
    """Sums on the way to the first `reads`, and what follows from them, that the rest of the step reads besides: the
    step before hands it on, so that it is computed once. All of it `moves` with the steps."""
    on_the_way = upstream(reads, given).difference(given, reads)
    rest = behind(values, {*given, *reads}).difference(given, reads)
    wanted = set(chain.from_iterable(d.operands() for d in rest - on_the_way))
    wanted.update(chain.from_iterable(loads(v.expression) for v in values))
    return sorted((d for d in wanted & on_the_way if _is_work(d, moves)), key=lambda d: d.serial)


def _is_work(definition: Definition, moves: Collection[Definition]) -> bool:
    """Whether it would take more to compute it again than to hand it on."""
    behind_it = upstream([definition], moves)
    return not behind_it.isdisjoint(moves) and any(isinstance(d, Reduce) for d in behind_it)


def settled(values: Sequence[Value]) -> list[Value]:
    """Every value as a definition of its own, so that others can read what was stored."""
    taken, result = set[Definition](), list[Value]()
    for shape, expression in values:
        own = expression.definition if isinstance(expression, Load) else None
        is_whole = own is not None and own.shape == shape and expression == Load(own, identity(shape))
        if own is None or not is_whole or own in taken or not isinstance(own, COMPUTED):
            own = Map(shape, expression)
        taken.add(own)
        result.append(whole(own))
    return result


class Later:
    """Definitions of this step as those of the next one: `instead` says what takes the place of what is given."""

    def __init__(self, instead: Mapping[Definition, Definition]) -> None:
        self.known = dict(instead)

    def definition(self, old: Definition) -> Definition:
        """The same of the next step; what depends on nothing that changes is the same definition."""
        if old not in self.known:
            self.known[old] = self._moved(old) if self._changes(old) else old
        return self.known[old]

    def _changes(self, old: Definition) -> bool:
        return not upstream([old], self.known).isdisjoint(self.known)

    def _moved(self, old: Definition) -> Definition:
        match old:
            case Map(shape, expression):
                return Map(shape, self._expression(expression), line=old.line)
            case Reduce(shape, reduction, extent, expression):
                return Reduce(shape, reduction, extent, self._expression(expression), line=old.line)
            case Assemble(shape, regions):
                moved = tuple(Region(r.start, r.shape, self._expression(r.expression)) for r in regions)
                return Assemble(shape, moved, line=old.line)
            case Reshape(shape, base):
                return Reshape(shape, self.definition(base), line=old.line)
        raise AssertionError("what is given has no operands that change")

    def _expression(self, old: Expression) -> Expression:
        if isinstance(old, Load):
            return Load(self.definition(old.definition), old.index)
        if isinstance(old, Apply):
            return Apply(old.function, tuple(self._expression(a) for a in old.arguments))
        return old
