"""Sums of products in which every term contains at most one state: alone, or in a product with a vector."""

from collections.abc import Iterable, Sequence
from functools import reduce
from typing import NamedTuple

from fastweights.compiler.ir.builder import ExpressionBuilder
from fastweights.compiler.ir.nodes import Apply, Constant, Expression, Index, Input, Load, Shape, Value, substitute


class Product(NamedTuple):
    """An element of a product of a state with a vector: the sum of both over the axes in `over`, at an index `place`.

    The vector is an expression in the axes of the state. If `over` is empty, the product is an element of the state.
    `place` has one index per axis of the state; those of the axes in `over` have no meaning.
    """

    state: str
    after: bool
    place: tuple[Index, ...]
    over: tuple[int, ...] = ()
    vector: Expression = Constant(1.0)


class Term(NamedTuple):
    """A product of known factors and at most one element of a state or of its product with a vector."""

    known: tuple[Expression, ...]
    atom: Product | None

    def at(self, index: Sequence[Index]) -> "Term":
        """A term of the axes of a node, at an index of it."""
        known = tuple(substitute(f, index) for f in self.known)
        if self.atom is None:
            return Term(known, None)
        # The index of an atom is one of a load, whatever is loaded.
        place = substitute(Load(_NOTHING, self.atom.place), index).index  # type: ignore[union-attr]
        return Term(known, self.atom._replace(place=place))


_NOTHING = Input(())


def sum_of(builder: ExpressionBuilder, products: Iterable[Sequence[Expression]], shape: Shape) -> Value:
    """A sum of products over a shape."""
    parts = [builder.product(shape, factors) for factors in products]
    if not parts:
        return Value(shape, Constant(0.0))
    return Value(shape, builder.map(shape, reduce(lambda a, b: Apply("add", (a, b)), parts)))
