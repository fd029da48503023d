"""The affine update of one state."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from fastweights.compiler.affine.form import Linear, Part, Read, Write
from fastweights.compiler.affine.not_affine import NotAffine
from fastweights.compiler.affine.terms import sum_of
from fastweights.compiler.ir.builder import ExpressionBuilder, factors_of
from fastweights.compiler.ir.nodes import Constant, Expression, Index, Shape, Value, axes, substitute, volume

Factors = Sequence[Expression]
"""A product of expressions in the axes of the state."""


class DecayTerm(NamedTuple):
    """A product of known factors with a state."""

    state: str
    known: Factors


class EraseTerm(NamedTuple):
    """A product of known factors with the sum of a state times a vector over some of its axes."""

    state: str
    known: Factors
    over: tuple[int, ...]
    vector: Expression


@dataclass(frozen=True)
class Update:
    """The affine update of a state, over its own axes: the terms of its decay, its erased reads, and its writes."""

    builder: ExpressionBuilder
    name: str
    shape: Shape
    decay_terms: tuple[DecayTerm, ...]
    erased: tuple[EraseTerm, ...]
    written: tuple[Factors, ...]

    def linear(self, reads: Iterable[Read], groups: int = 1) -> Linear:
        """The state as a matrix S, with the first choice of columns that fits; without a decay of the rows if any.

        A state without rows has at most a number of `groups`.
        """
        own_reads, errors = [r for r in reads if r.state in self.states], list[NotAffine]()
        for rows_decay in (False, True):
            for columns in self._choices(own_reads):
                try:
                    return self._linear(self._part(columns, own_reads, rows_decay, groups), own_reads)
                except NotAffine as error:
                    errors.append(error)
        raise errors[0]

    @property
    def states(self) -> tuple[str, ...]:
        """The states that the update makes."""
        return (self.name,)

    def _choices(self, reads: Sequence[Read]) -> list[tuple[int, ...]]:
        """The candidates for the columns.

        They are the axes of vectors that erase, else of vectors that read, else of the decay, else the last axis.
        """
        erased = {tuple(sorted(e.over)) for e in self.erased}
        if len(erased) > 1:
            raise NotAffine(f"{self.name} is multiplied from both sides")
        read = sorted((r.over for r in reads), key=lambda over: not over)
        decaying = [(a,) for a in sorted(self._decaying_axes)]
        return list(dict.fromkeys(erased or [*read, *decaying])) or [tuple(range(len(self.shape)))[-1:]]

    @property
    def _decaying_axes(self) -> frozenset[int]:
        return frozenset[int]().union(*(axes(f) for term in self.decay_terms for f in term.known))

    def _part(self, columns: tuple[int, ...], reads: Sequence[Read], rows_decay: bool, most: int) -> Part:
        """The state with these columns, whose rows may have a decay of their own.

        Raises:
            NotAffine: The coefficients depend on so many axes that none is left for the rows. Or they depend on the
                rows of a single matrix, where a product per row would be no faster than the time steps.
        """
        groups = frozenset[int]()
        for tied, why in self._tied(Part(self.name, self.shape, (), columns), reads, rows_decay):
            groups |= tied.difference(columns)
            has_rows = len(self.shape) > 2 and len(groups | {*columns}) < len(self.shape)
            if groups and not has_rows and volume([self.shape[a] for a in groups]) > most:
                raise NotAffine(why)
        part = Part(self.name, self.shape, tuple(sorted(groups)), columns)
        if any(not part.is_along(r) and groups & {*r.over} for r in reads):
            raise NotAffine(f"{self.name} is in products with vectors over different axes")
        return part

    def _tied(self, part: Part, reads: Sequence[Read], rows_decay: bool) -> Iterator[tuple[frozenset[int], str]]:
        """The axes that must be columns or groups, with the error message if they cannot be."""
        name = self.name
        together = f"the rows of {name} decay separately, and are erased together"
        why = together if self.erased and len(self._decaying_axes) < 2 else f"every element of {name} decays separately"
        for factor in (f for term in self.decay_terms for f in flat(term.known)):
            if self.erased or not rows_decay or axes(factor) & {*part.columns}:
                yield axes(factor), why
        for erased in self.erased:
            known = frozenset[int]().union(*(axes(f) for f in flat(erased.known)))
            yield known, f"the erased part of {name} differs between rows"
            yield axes(erased.vector), f"every row of {name} is multiplied by a different vector"
        for factor in (f for known in self.written for f in flat(known) if axes(f) & {*part.columns}):
            yield axes(factor), f"a whole matrix is added to {name}, not the product of two vectors"
        for read in reads:
            own = f"every row of {name} is multiplied by a different vector"
            if part.is_along(read):
                yield axes(read.vector.expression), own
            elif {*read.over} & {*part.columns} or axes(read.vector.expression) & {*part.columns}:
                raise NotAffine(f"{name} is in products with vectors over different axes")
            elif read.over:
                yield frozenset(range(len(self.shape))) - {*read.over}, own
            else:
                yield frozenset(a for a, size in enumerate(self.shape) if size > 1), own

    def _linear(self, part: Part, reads: Sequence[Read]) -> Linear:
        columns, rows = (*part.groups, *part.columns), (*part.groups, *part.rows)
        by_row, other_factors = self._row_factors(part)
        row_decay = self._sum([by_row], rows) if by_row else None
        decay = None if other_factors == [[]] else self._sum(other_factors, self._decay_axes(part))
        writes = self._writes(part, columns, rows)
        return Linear((part,), decay, row_decay, tuple(writes), tuple(self._reads_over(part, reads)))

    def _row_factors(self, part: Part) -> tuple[Factors, list[Factors]]:
        """The factors of the decay that depend on the row, and the other factors of every term."""
        terms = [flat(term.known) for term in self.decay_terms]
        by_row = [[f for f in known if axes(f) & {*part.rows}] for known in terms]
        if any(factors != by_row[0] for factors in by_row):
            raise NotAffine(f"every element of {self.name} decays separately")
        return by_row[0] if by_row else [], [[f for f in known if not axes(f) & {*part.rows}] for known in terms]

    def _decay_axes(self, part: Part) -> tuple[int, ...]:
        return (*part.groups, *part.columns) if self._decaying_axes & {*part.columns} else part.groups

    def _reads_over(self, part: Part, reads: Sequence[Read]) -> Iterator[Read]:
        """The reads, with vectors over the groups and the columns or rows."""
        for read in reads:
            chosen = (*part.groups, *(part.columns if part.is_along(read) else part.rows))
            yield read._replace(vector=self._sum([[read.vector.expression]], chosen))

    def _writes(self, part: Part, columns: Sequence[int], rows: Sequence[int]) -> list[Write]:
        """The writes. Those along one key are merged."""
        keys: dict[Expression, tuple[list[Factors], list[Factors]]] = {}
        for erased in self.erased:
            key, rest = self._split(erased.known, part, columns)
            keys.setdefault(key, ([], []))[0].append([*rest, Constant(-1.0), erased.vector])
        for known in self.written:
            key, rest = self._split(known, part, columns)
            keys.setdefault(key, ([], []))[1].append(rest)
        sizes = part.sizes(columns)
        return [
            Write(
                Value(sizes, key),
                self._sum(erase, columns) if erase else None,
                (self._sum(value, rows) if value else None,),
            )
            for key, (erase, value) in keys.items()
        ]

    def _split(self, known: Factors, part: Part, columns: Sequence[int]) -> tuple[Expression, list[Expression]]:
        """The factors along the columns as one vector, and the others."""
        factors = flat(known)
        along = [f for f in factors if axes(f) & {*part.columns}]
        key = self.builder.product(part.sizes(columns), [substitute(f, self._onto(columns)) for f in along])
        return key, [f for f in factors if not axes(f) & {*part.columns}]

    def _sum(self, products: Sequence[Factors], chosen: Sequence[int]) -> Value:
        """A sum of products over some axes of the state."""
        moved = [[substitute(f, self._onto(chosen)) for f in known] for known in products]
        return sum_of(self.builder, moved, tuple(self.shape[a] for a in chosen))

    def _onto(self, chosen: Sequence[int]) -> list[Index]:
        return [Index(chosen.index(a)) if a in chosen else Index(-1, 0, 0) for a in range(len(self.shape))]


def flat(known: Factors) -> list[Expression]:
    """All factors, with those of products among them."""
    return [g for f in known for g in factors_of(f)]
