"""The affine update of several states that are added to each other, such as a memory and the momentum of its writes.

The states are side by side, as the columns of one matrix S. Numbers that multiply whole states are the decay of S, a
matrix. A read of one state that is written to another is erased along a key in the columns of the other.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import chain
from operator import and_
from typing import NamedTuple

from fastweights.compiler.affine.form import Linear, Part, Read, Write
from fastweights.compiler.affine.not_affine import NotAffine
from fastweights.compiler.affine.update import Factors, Update, flat
from fastweights.compiler.ir.nodes import (
    Assemble,
    Constant,
    Expression,
    Index,
    Region,
    Value,
    axes,
    substitute,
    whole,
)


def coupled(updates: Sequence[Update]) -> "CoupledUpdate":
    """The update of several states of one shape."""
    name = f"[{' '.join(update.name for update in updates)}]"
    decay_terms, erased, written = (
        tuple(part for update in updates for part in parts(update))
        for parts in (lambda u: u.decay_terms, lambda u: u.erased, lambda u: u.written)
    )
    return CoupledUpdate(updates[0].builder, name, updates[0].shape, decay_terms, erased, written, tuple(updates))


class Products(NamedTuple):
    """The writes to one state along a key: erased vectors over the columns by state, and values over the rows."""

    erased: dict[str, list[Factors]]
    written: list[Factors]


@dataclass(frozen=True)
class CoupledUpdate(Update):
    """The updates of all states, and all of their terms as those of one state."""

    members: tuple[Update, ...]

    @property
    def states(self) -> tuple[str, ...]:
        return tuple(member.name for member in self.members)

    def _linear(self, part: Part, reads: Sequence[Read]) -> Linear:
        if self._decaying_axes & {*part.rows}:
            raise NotAffine(f"the rows of {self.name} decay separately")
        parts = tuple(part._replace(state=name) for name in self.states)
        all_reads = [
            self._with_zeros(part, read) if part.is_along(read) else read for read in self._reads_over(part, reads)
        ]
        writes = tuple(self._coupled_writes(part))
        return Linear(parts, self._decay_matrix(part), None, writes, tuple(all_reads), is_coupled=True)

    def _with_zeros(self, part: Part, read: Read) -> Read:
        """The read, with 0 for the other states."""
        return read._replace(vector=self._side_by_side(part, {self.states.index(read.state): read.vector}))

    def _decay_matrix(self, part: Part) -> Value | None:
        """The numbers that multiply one state for another, `[groups, states, states]`; None if none does."""
        entries = dict[tuple[int, ...], list[Factors]]()
        for to, member in enumerate(self.members):
            for term in member.decay_terms:
                entries.setdefault((to, self.states.index(term.state)), []).append(term.known)
        if entries == {(n, n): [()] for n in range(len(self.states))}:
            return None
        values = {place: self._sum(known, self._decay_axes(part)) for place, known in entries.items()}
        return self._assembled(part, values, axes=2)

    def _side_by_side(self, part: Part, values: Mapping[int, Value]) -> Value:
        """Vectors of some states as one vector over all, `[groups, states, columns]`."""
        return self._assembled(part, {(n,): value for n, value in values.items()}, axes=1)

    def _assembled(self, part: Part, values: Mapping[tuple[int, ...], Value], axes: int) -> Value:
        """Values at their places along further axes, behind those of the groups."""
        groups, regions = len(part.groups), list[Region]()
        sizes = next(iter(values.values())).shape
        moved = [Index(a if a < groups else a + axes) for a in range(len(sizes))]
        for place, (_, expression) in values.items():
            start = (*[0] * groups, *place, *[0] * (len(sizes) - groups))
            shape = (*sizes[:groups], *[1] * axes, *sizes[groups:])
            regions.append(Region(start, shape, substitute(expression, moved)))
        shape = (*sizes[:groups], *[len(self.states)] * axes, *sizes[groups:])
        return whole(Assemble(shape, tuple(regions)))

    def _coupled_writes(self, part: Part) -> Iterator[Write]:
        """The writes. Those of the same vector are one write, along a key in all states."""
        columns, rows = (*part.groups, *part.columns), (*part.groups, *part.rows)
        merged = list[tuple[dict[str, Value], Value | None, dict[int, list[Factors]]]]()
        for to, member in enumerate(self.members):
            for key, products in self._products(member, part).items():
                common = self._common(products)
                erase = {s: self._sum(_without(common, known), columns) for s, known in products.erased.items()}
                value = self._sum(_without(common, products.written), rows) if products.written else None
                same = next((keys for e, v, keys in merged if (e, v) == (erase, value)), None)
                if same is None:
                    merged.append((erase, value, same := {}))
                same.setdefault(to, []).append([key, *common.elements()])
        for erase, value, keys in merged:
            erased = self._side_by_side(part, {self.states.index(s): v for s, v in erase.items()}) if erase else None
            along = {to: self._sum(known, columns) for to, known in keys.items()}
            yield Write(self._side_by_side(part, along), erased, (value,))

    def _products(self, member: Update, part: Part) -> dict[Expression, Products]:
        """The products by the factors of their keys, in the axes of the state."""
        products_by_key = dict[Expression, Products]()
        for state, known, _, vector in member.erased:
            key, rest = self._along(known, part)
            products = products_by_key.setdefault(key, Products({}, []))
            products.erased.setdefault(state, []).append([*rest, Constant(-1.0), *flat([vector])])
        for known in member.written:
            key, rest = self._along(known, part)
            products_by_key.setdefault(key, Products({}, [])).written.append(rest)
        return products_by_key

    def _along(self, known: Factors, part: Part) -> tuple[Expression, list[Expression]]:
        """The factors along the columns as a product, and the others."""
        factors = flat(known)
        along = [f for f in factors if axes(f) & {*part.columns}]
        return self.builder.product(self.shape, along), [f for f in factors if not axes(f) & {*part.columns}]

    def _common(self, products: Products) -> Counter[Expression]:
        """The numbers that all products have as a factor."""
        all_products = [*chain.from_iterable(products.erased.values()), *products.written]
        common = reduce(and_, map(Counter, all_products))
        return Counter({f: n for f, n in common.items() if not axes(f)})


def _without(common: Counter[Expression], products: Sequence[Factors]) -> list[Factors]:
    return [list((Counter(known) - common).elements()) for known in products]
