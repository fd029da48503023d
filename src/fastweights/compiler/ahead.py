"""What a step reads off a matrix first, read by the step before while it stores the matrix: one pass instead of two.

`W[t-1] k[t]` needs nothing of step t but its inputs. So step t is given the sums that it would begin with, and makes
those of step t + 1 where it has every element of the new W in a register.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence

from fastweights.compiler.ir import Apply, Definition, Expression, Load, Region, identity, loads
from fastweights.compiler.operations.value import Value

SMALL = 4
"""A sum is read ahead if it is this many times smaller than the matrix that it is read off."""


def first_reads(
    values: Iterable[Value],
    state: Collection[Definition],
    given: Collection[Definition],
    matrices: Collection[Definition],
) -> list[Definition]:
    """The small sums over a matrix of `state` that wait for no other sum over one of the `matrices`."""
    found = [d for d in upstream((d for v in values for d in loads(v.expression)), given) if d.reduction == "sum"]
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


def is_matrix(definition: Definition) -> bool:
    """Whether a definition has two axes or more."""
    return sum(n > 1 for n in definition.shape) > 1


def upstream(definitions: Iterable[Definition], given: Collection[Definition]) -> set[Definition]:
    """Everything that `definitions` are computed from, and they themselves, as far as what is `given`."""
    seen, queue = set[Definition](), list(definitions)
    while queue:
        definition = queue.pop()
        if definition not in seen:
            seen.add(definition)
            queue.extend(() if definition in given else definition.operands())
    return seen


def settled(values: Sequence[Value]) -> list[Value]:
    """Every value as a definition of its own, so that others can read what was stored."""
    taken, result = set[Definition](), list[Value]()
    for shape, expression in values:
        own = expression.definition if isinstance(expression, Load) else None
        whole = own is not None and own.shape == shape and expression == Load(own, identity(shape))
        if own is None or not whole or own in taken or own.kind not in ("map", "reduce", "assemble"):
            own = Definition("map", shape, expression)
        taken.add(own)
        result.append(Value(shape, Load(own, identity(shape))))
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
        regions = tuple(Region(r.start, r.shape, self._expression(r.expression)) for r in old.regions)
        expression = None if old.expression is None else self._expression(old.expression)
        base = None if old.base is None else self.definition(old.base)
        return Definition(
            old.kind,
            old.shape,
            expression,
            old.reduction,
            old.extent,
            regions,
            base,
            line=old.line,
            contiguous=old.contiguous,
            once=old.once,
        )

    def _expression(self, old: Expression) -> Expression:
        if isinstance(old, Load):
            return Load(self.definition(old.definition), old.index)
        if isinstance(old, Apply):
            return Apply(old.function, tuple(self._expression(a) for a in old.arguments))
        return old
