"""The affine update of one state."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from fastweights.compiler.affine.form import Linear, Part, Read, Write
from fastweights.compiler.affine.not_affine import NotAffine
from fastweights.compiler.affine.terms import sum_of
from fastweights.compiler.ir.builder import ExpressionBuilder, factors_of
from fastweights.compiler.ir.nodes import Constant, Expression, Index, Shape, Value, axes, substitute

Factors = Sequence[Expression]
"""A product of expressions in the axes of the state."""


class Erased(NamedTuple):
    """A product of known factors with the sum of a state times a vector over some of its axes."""

    known: Factors
    over: tuple[int, ...]
    vector: Expression


@dataclass(frozen=True)
class Update:
    """The affine update of a state, over its own axes: the factors of its decay, its erased reads, and its writes."""

    builder: ExpressionBuilder
    state: str
    shape: Shape
    stays: tuple[Factors, ...]
    erased: tuple[Erased, ...]
    written: tuple[Factors, ...]

    def linear(self, reads: Iterable[Read]) -> Linear:
        """The state as a matrix S, with the first choice of columns that fits."""
        mine, refused = [r for r in reads if r.state == self.state], list[NotAffine]()
        for columns in self._choices(mine):
            try:
                return self._linear(self._part(columns, mine), mine)
            except NotAffine as error:
                refused.append(error)
        raise refused[0]

    def _choices(self, reads: Sequence[Read]) -> list[tuple[int, ...]]:
        """The candidates for the columns.

        They are the axes of vectors that erase, else of vectors that read, else of the decay, else the last axis.
        """
        erased = {tuple(sorted(e.over)) for e in self.erased}
        if len(erased) > 1:
            raise NotAffine(f"{self.state} is multiplied from both sides")
        found = sorted((r.over for r in reads), key=lambda over: not over)
        fading = [(a,) for a in sorted(self._fading)]
        return list(dict.fromkeys(erased or [*found, *fading])) or [tuple(range(len(self.shape)))[-1:]]

    @property
    def _fading(self) -> frozenset[int]:
        return frozenset[int]().union(*(axes(f) for known in self.stays for f in known))

    def _part(self, columns: tuple[int, ...], reads: Sequence[Read]) -> Part:
        """The state with these columns.

        Raises:
            NotAffine: The coefficients depend on so many axes that none is left for the rows. Or they depend on the
                rows of a single matrix, where a product per row would be no faster than the time steps.
        """
        groups = frozenset[int]()
        for tied, why in self._tied(Part(self.state, self.shape, (), columns), reads):
            groups |= tied.difference(columns)
            if groups and (len(self.shape) < 3 or len(groups | {*columns}) == len(self.shape)):
                raise NotAffine(why)
        part = Part(self.state, self.shape, tuple(sorted(groups)), columns)
        if any(not part.is_along(r) and groups & {*r.over} for r in reads):
            raise NotAffine(f"{self.state} is in products with vectors over different axes")
        return part

    def _tied(self, part: Part, reads: Sequence[Read]) -> Iterator[tuple[frozenset[int], str]]:
        """The axes that must be columns or groups, with the error message if they cannot be."""
        name = self.state
        together = f"the rows of {name} fade by themselves, and are erased together"
        yield (
            self._fading,
            together if self.erased and len(self._fading) < 2 else f"every number of {name} fades by itself",
        )
        for erased in self.erased:
            known = frozenset[int]().union(*(axes(f) for f in _flat(erased.known)))
            yield known, f"what is erased of {name} differs from row to row"
            yield axes(erased.vector), f"every row of {name} is in a product with a vector of its own"
        for factor in (f for known in self.written for f in _flat(known) if axes(f) & {*part.columns}):
            yield axes(factor), f"a whole matrix is added to {name}, not the product of two vectors"
        for read in reads:
            own = f"every row of {name} is in a product with a vector of its own"
            if part.is_along(read):
                yield axes(read.vector.expression), own
            elif {*read.over} & {*part.columns}:
                raise NotAffine(f"{name} is in products with vectors over different axes")
            elif read.over:
                yield frozenset(range(len(self.shape))) - {*read.over}, own

    def _linear(self, part: Part, reads: Sequence[Read]) -> Linear:
        columns, rows = (*part.groups, *part.columns), (*part.groups, *part.rows)
        seen = [
            r._replace(vector=self._sum([[r.vector.expression]], columns if part.is_along(r) else rows)) for r in reads
        ]
        decay = self._sum(self.stays, columns if self._fading & {*part.columns} else part.groups)
        writes = self._writes(part, columns, rows)
        return Linear((part,), None if self.stays == ((),) else decay, tuple(writes), tuple(seen))

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
        flat = _flat(known)
        along = [f for f in flat if axes(f) & {*part.columns}]
        key = self.builder.product(part.sizes(columns), [substitute(f, self._onto(columns)) for f in along])
        return key, [f for f in flat if not axes(f) & {*part.columns}]

    def _sum(self, products: Sequence[Factors], chosen: Sequence[int]) -> Value:
        """A sum of products over some axes of the state."""
        moved = [[substitute(f, self._onto(chosen)) for f in known] for known in products]
        return sum_of(self.builder, moved, tuple(self.shape[a] for a in chosen))

    def _onto(self, chosen: Sequence[int]) -> list[Index]:
        return [Index(chosen.index(a)) if a in chosen else Index(-1, 0, 0) for a in range(len(self.shape))]


def _flat(known: Factors) -> list[Expression]:
    return [g for f in known for g in factors_of(f)]
