"""Builds expressions: merges common subexpressions, and distributes sums of products.

Factors that do not depend on the summed axis leave the sum (loop-invariant code motion), and an outer product inside a
sum becomes a dot product. For example, `sum_ij (beta G) (e k^T)` in a traced gradient becomes `beta e . (G k)`, which
shares `G k` with other expressions.
"""

from collections.abc import Iterable

from fastweights.compiler.ir.nodes import (
    Apply,
    Constant,
    Expression,
    Index,
    Load,
    Map,
    Node,
    Reduce,
    Reduction,
    Shape,
    axes,
    identity,
    sort_key,
    substitute,
)


class ExpressionBuilder:
    """Creates nodes. Equal expressions share one node."""

    def __init__(self) -> None:
        self._known: dict[object, Node] = {}
        self.line = ""
        self.positions: dict[Node, int] = {}
        """Nodes that are positions along an axis, and their exclusive upper bound."""

    def map(self, shape: Shape, expression: Expression) -> Expression:
        """A load of the node of an expression, so that it is computed once. Loads and constants stay as they are."""
        if isinstance(expression, Load | Constant):
            return expression
        node = self._intern(("map", shape, expression), Map(shape, expression, line=self.line))
        return Load(node, identity(shape))

    def reduce(self, kind: Reduction, shape: Shape, expression: Expression, axis: int) -> Expression:
        """The reduction of an expression over an axis of `shape`, as an expression over the same shape."""
        reduced = self._summed if kind == "sum" else lambda s, e, a: self._reduced(kind, s, e, a)
        return reduced(shape, expression, axis)

    def product(self, shape: Shape, factors: Iterable[Expression]) -> Expression:
        """A product over `shape`. Factors with fewer axes are multiplied first, outside the larger loop."""
        constant, rest = _constants(factor for f in factors for factor in factors_of(f))
        if not rest:
            return Constant(constant)
        if constant != 1:
            rest.append(Constant(constant))
        groups = self._absorb(shape, _by_axes(rest))
        return _chain("mul", [_chain("mul", group) for group in groups])

    def _absorb(self, shape: Shape, groups: dict[frozenset[int], list[Expression]]) -> list[list[Expression]]:
        """Multiplies every group of factors into the smallest group with more axes. Returns the remaining groups."""
        remaining = sorted(groups, key=lambda a: (len(a), sorted(a)))
        while True:
            pair = next(((a, b) for a in remaining for b in remaining if a < b), None)
            if pair is None:
                return [groups[a] for a in remaining]
            small, large = pair
            groups[large] = [self.on_axes(shape, _chain("mul", groups[small])), *groups[large]]
            remaining.remove(small)

    def on_axes(self, shape: Shape, expression: Expression) -> Expression:
        """A load of the node of an expression, which has only the axes of `shape` that the expression depends on."""
        if isinstance(expression, Load | Constant):
            return expression
        used = sorted(axes(expression))
        mapping = [Index(used.index(a)) if a in used else Index(-1, 0, 0) for a in range(len(shape))]
        load = self.map(tuple(shape[a] for a in used), substitute(expression, mapping))
        return substitute(load, [Index(a) for a in used])

    def _summed(self, shape: Shape, expression: Expression, axis: int) -> Expression:
        constant, factors = _constants(factors_of(expression))
        outer = [f for f in factors if axis not in axes(f)]
        inner = [f for f in factors if axis in axes(f)]
        if not inner:
            return self.product(shape, [expression, Constant(float(shape[axis]))])
        total = self._distributed(shape, inner, axis) or self._reduced("sum", shape, _sorted_product(inner), axis)
        return self.product(shape, [Constant(constant), *outer, total])

    def _distributed(self, shape: Shape, factors: list[Expression], axis: int) -> Expression | None:
        """The sum of the reduced terms if one factor is a sum with a separable term; else None."""
        whole = frozenset().union(*map(axes, factors))
        for n, factor in enumerate(factors):
            terms = terms_of(factor)
            others = factors[:n] + factors[n + 1 :]
            if len(axes(factor)) > 1 and any(_separates([term, *others], axis, whole) for _, term in terms):
                parts = [(sign, self._summed(shape, _chain("mul", [term, *others]), axis)) for sign, term in terms]
                return self._signed_sum(shape, parts)
        return None

    def _signed_sum(self, shape: Shape, parts: list[tuple[str, Expression]]) -> Expression:
        (sign, total), *rest = parts
        assert sign == "add"
        for sign, part in rest:
            total = Apply(sign, (self.on_axes(shape, total), self.on_axes(shape, part)))
        return self.on_axes(shape, total)

    def _reduced(self, kind: Reduction, shape: Shape, expression: Expression, axis: int) -> Expression:
        if kind == "sum":
            expression = self.product(shape, factors_of(expression))
        used = sorted(axes(expression) - {axis})
        position = {**{a: n for n, a in enumerate(used)}, axis: len(used)}
        mapping = [Index(position[a]) if a in position else Index(-1, 0, 0) for a in range(len(shape))]
        out, body = tuple(shape[a] for a in used), substitute(expression, mapping)
        fresh = Reduce(out, kind, shape[axis], body, line=self.line)
        node = self._intern((kind, out, shape[axis], body), fresh)
        return Load(node, tuple(Index(a) for a in used))

    def _intern(self, key: object, fresh: Node) -> Node:
        return self._known.setdefault(key, fresh)


def expose(expression: Expression) -> Expression:
    """The expression of a map instead of a load of the map."""
    if isinstance(expression, Load) and isinstance(expression.node, Map):
        return substitute(expression.node.expression, expression.index)
    return expression


def factors_of(expression: Expression) -> list[Expression]:
    """The factors of a product, also of one that has its own node. A negation has the factor -1."""
    inside = expose(expression)
    if isinstance(inside, Apply) and inside.function == "mul":
        return [factor for a in inside.arguments for factor in factors_of(a)]
    if isinstance(inside, Apply) and inside.function == "neg":
        return [Constant(-1.0), *factors_of(inside.arguments[0])]
    return [expression]


def terms_of(expression: Expression) -> list[tuple[str, Expression]]:
    """The terms of a sum or difference, with "add" or "sub" for their sign."""
    inside = expose(expression)
    if isinstance(inside, Apply) and inside.function in ("add", "sub"):
        (first, second), flip = inside.arguments, {"add": "sub", "sub": "add"}
        rest = terms_of(second)
        return terms_of(first) + [(s if inside.function == "add" else flip[s], t) for s, t in rest]
    return [("add", expression)]


def _separates(factors: list[Expression], axis: int, whole: frozenset[int]) -> bool:
    inner = [a for f in factors for g in factors_of(f) if axis in (a := axes(g))]
    return frozenset().union(*inner) < whole


def _constants(factors: Iterable[Expression]) -> tuple[float, list[Expression]]:
    constant, rest = 1.0, list[Expression]()
    for factor in factors:
        if isinstance(factor, Constant):
            constant *= factor.value
        else:
            rest.append(factor)
    return constant, rest


def _by_axes(factors: list[Expression]) -> dict[frozenset[int], list[Expression]]:
    groups: dict[frozenset[int], list[Expression]] = {}
    for factor in sorted(factors, key=sort_key):
        groups.setdefault(axes(factor), []).append(factor)
    return groups


def _sorted_product(factors: list[Expression]) -> Expression:
    return _chain("mul", sorted(factors, key=sort_key))


def _chain(function: str, parts: list[Expression]) -> Expression:
    total = parts[0]
    for part in parts[1:]:
        total = Apply(function, (total, part))
    return total
