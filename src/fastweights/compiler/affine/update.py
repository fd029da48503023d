"""How one state is affine in itself."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fastweights.compiler.affine.form import Linear, Part, Read, Write
from fastweights.compiler.affine.not_affine import NotAffine
from fastweights.compiler.affine.terms import Product, Term, sum_of
from fastweights.compiler.algebra import Graph, factors_of
from fastweights.compiler.ir import Constant, Expression, Index, Shape, Value, axes, substitute


@dataclass(frozen=True)
class Update:
    """How a state is affine in itself, over its own axes: what stays of it, what is erased of it, what is written."""

    graph: Graph
    state: str
    shape: Shape
    stays: tuple[tuple[Expression, ...], ...]
    erased: tuple[Term, ...]
    written: tuple[tuple[Expression, ...], ...]

    def linear(self, reads: Sequence[Read]) -> Linear:
        """As rows of a matrix, or of its transpose."""
        mine = tuple(r for r in reads if r.state == self.state)
        column = self._column(mine)
        part = Part(self.state, self.shape, column)
        return Linear((part,), self._decay(part), tuple(self._writes(part)), mine)

    def _column(self, reads: Sequence[Read]) -> int | None:
        """The axis along which vectors erase, or numbers fade, or else the one along which it is read."""
        erased = {t.atom.axis for t in self.erased}  # type: ignore[union-attr]
        fading = {a for known in self.stays for f in known for a in axes(f)}
        if len(erased) > 1:
            raise NotAffine(f"{self.state} is multiplied from both sides")
        if len(fading) > 1:
            raise NotAffine(f"every number of {self.state} fades by itself")
        if erased and fading - erased:
            raise NotAffine(f"the rows of {self.state} fade by themselves, and are erased together")
        found = [*erased, *fading, *(r.axis for r in reads)]
        return found[0] if found else len(self.shape) - 1 if self.shape else None

    def _decay(self, part: Part) -> Value | None:
        if self.stays == ((),):
            return None
        fades = any(axes(f) for known in self.stays for f in known)
        return self._sum(self.stays, part.column if fades else None, part)

    def _writes(self, part: Part) -> list[Write]:
        """Those along one key are one."""
        keys: dict[Expression, tuple[list[Any], list[Any]]] = {}
        for term in self.erased:
            assert isinstance(term.atom, Product)
            key, rest = self._split(term.known, part)
            if any(axes(f) for f in rest):
                raise NotAffine(f"what is erased of {self.state} differs from row to row")
            keys.setdefault(key, ([], []))[0].append((*rest, Constant(-1.0), term.atom.vector.expression))
        for known in self.written:
            key, rest = self._split(known, part)
            keys.setdefault(key, ([], []))[1].append(rest)
        rows = next((a for a in range(len(self.shape)) if a != part.column), None)
        return [
            Write(
                Value((part.columns,), key),
                sum_of(self.graph, erase, (part.columns,)) if erase else None,
                (self._sum(value, rows, part) if value else None,),
            )
            for key, (erase, value) in keys.items()
        ]

    def _split(self, known: Sequence[Expression], part: Part) -> tuple[Expression, list[Expression]]:
        """The factors along the columns as one vector, and the others."""
        flat = [g for f in known for g in factors_of(f)]
        if any(len(axes(f)) > 1 for f in flat):
            raise NotAffine(f"a whole matrix is added to {self.state}, not the product of two vectors")
        along = [f for f in flat if part.column in axes(f)]
        only = self._onto(part.column)
        key = self.graph.product((part.columns,), [substitute(f, only) for f in along])
        return key, [f for f in flat if part.column not in axes(f)]

    def _sum(self, products: Sequence[Sequence[Expression]], axis: int | None, part: Part) -> Value:
        """A sum of products over one axis of the state."""
        moved = [[substitute(f, self._onto(axis)) for f in known] for known in products]
        return sum_of(self.graph, moved, () if axis is None else (self.shape[axis],))

    def _onto(self, axis: int | None) -> list[Index]:
        return [Index(0) if a == axis else Index(-1, 0, 0) for a in range(len(self.shape))]
