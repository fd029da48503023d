"""Lowering rules of operations that reduce axes: sums, means, extrema, matrix products."""

from collections.abc import Callable
from math import inf
from typing import Any

from fastweights.compiler.ir.builder import ExpressionBuilder
from fastweights.compiler.ir.nodes import Constant, Index, Reduction, Shape, Value, substitute, volume
from fastweights.compiler.operations.elementwise import elementwise, multiplied, root, scaled, sum_of
from fastweights.compiler.operations.value import as_mask, as_value, made


def _reduction(kind: Reduction) -> Callable[..., Value]:
    def rule(builder: ExpressionBuilder, x: Value, dims: Any = None, keepdim: bool = False, **_: Any) -> Value:
        x, rank = as_value(x), len(x.shape)
        if not volume(x.shape) and kind == "sum":
            x = Value(tuple(n or 1 for n in x.shape), Constant(0.0))
        chosen = range(rank) if dims is None or dims == [] else [dims] if isinstance(dims, int) else dims
        reduced = {d % rank for d in chosen} if rank else set()
        expression = x.expression
        for axis in sorted(reduced, reverse=True):
            if x.shape[axis] > 1:
                expression = builder.reduce(kind, x.shape, expression, axis)
        axes_left = [a for a in range(rank) if keepdim or a not in reduced]
        place = [
            Index(axes_left.index(a)) if a not in reduced and x.shape[a] > 1 else Index(-1, 0, 0) for a in range(rank)
        ]
        shape = tuple(1 if a in reduced else x.shape[a] for a in axes_left)
        return made(builder, shape, substitute(expression, place))

    return rule


summed, highest, lowest = _reduction("sum"), _reduction("max"), _reduction("min")


def _mean(builder: ExpressionBuilder, x: Value, dims: Any = None, keepdim: bool = False, **_: Any) -> Value:
    total = summed(builder, x, dims, keepdim)
    return multiplied(builder, total, volume(total.shape) / volume(x.shape) if volume(x.shape) else float("nan"))


def _var(builder: ExpressionBuilder, x: Value, dims: Any = None, correction: Any = 1, keepdim: bool = False) -> Value:
    # From one of them on, which the algebra must not see through: of equal numbers exactly 0, where the root has its
    # kink.
    shifted = elementwise("identity")(builder, elementwise("sub")(builder, x, _firsts(x, dims)))
    off = elementwise("sub")(builder, shifted, _mean(builder, shifted, dims, True))
    total = summed(builder, multiplied(builder, off, off), dims, keepdim)
    freedom = volume(x.shape) // volume(total.shape) - (1 if correction is None else correction)
    return multiplied(builder, total, 1 / freedom if freedom > 0 else float("inf"))


def _firsts(x: Value, dims: Any) -> Value:
    """The first element along each of the axes, which remain with size 1."""
    rank = len(x.shape)
    over = {axis % rank for axis in dims} if dims else {*range(rank)}
    place = [Index(-1, 0, 0) if axis in over or n == 1 else Index(axis) for axis, n in enumerate(x.shape)]
    return Value(tuple(1 if axis in over else n for axis, n in enumerate(x.shape)), substitute(x.expression, place))


def _var_mean(builder: ExpressionBuilder, x: Value, dims: Any = None, **keywords: Any) -> tuple[Value, Value]:
    return _var(builder, x, dims, **keywords), _mean(builder, x, dims, keywords.get("keepdim", False))


def _matmul(builder: ExpressionBuilder, a: Value, b: Value) -> Value:
    """`[..., i, k] @ [..., k, j]` as a sum of products over k, the last axis of `[..., i, j, k]`."""
    *batch, rows, inner = a.shape
    shape = (*batch, rows, b.shape[-1], inner)
    n = len(batch)
    first = substitute(a.expression, _places([*range(n), n, n + 2], a.shape))
    second = substitute(b.expression, _places([*range(n), n + 2, n + 1], b.shape))
    product = made(builder, shape, builder.product(shape, [first, second]))
    return summed(builder, product, [-1])


def _addmm(builder: ExpressionBuilder, c: Value, a: Value, b: Value, beta: Any = 1, alpha: Any = 1) -> Value:
    product = (_matmul if len(b.shape) > 1 else _mv)(builder, a, b)
    return sum_of("add")(builder, scaled(builder, c, beta), product, alpha)


def _places(order: list[int], shape: Shape) -> list[Index]:
    return [Index(-1, 0, 0) if size == 1 else Index(place) for place, size in zip(order, shape, strict=True)]


def _mv(builder: ExpressionBuilder, a: Value, b: Value) -> Value:
    return summed(builder, multiplied(builder, a, b), [-1])


def _std(builder: ExpressionBuilder, x: Value, dims: Any = None, correction: Any = 1, keepdim: bool = False) -> Value:
    return root(builder, _var(builder, x, dims, correction, keepdim))


def _std_mean(builder: ExpressionBuilder, x: Value, dims: Any = None, **keywords: Any) -> tuple[Value, Value]:
    return _std(builder, x, dims, **keywords), _mean(builder, x, dims, keywords.get("keepdim", False))


def _norm(
    builder: ExpressionBuilder, x: Value, order: float = 2, dims: Any = None, keepdim: bool = False, **_: Any
) -> Value:
    """The p-norm, or its limit."""
    lengths = elementwise("abs")(builder, x)
    if abs(order) == inf:
        return (highest if order > 0 else lowest)(builder, lengths, dims, keepdim)
    if order == 0:
        return summed(builder, as_mask(x), dims, keepdim)
    if order == 1:
        return summed(builder, lengths, dims, keepdim)
    powers = multiplied(builder, x, x) if order == 2 else root(builder, lengths, order)
    return root(builder, summed(builder, powers, dims, keepdim), 1 / order)


def _any(builder: ExpressionBuilder, x: Value, dims: Any = None, keepdim: bool = False) -> Value:
    return as_mask(highest(builder, as_value(as_mask(x)), dims, keepdim))


def _softmax(builder: ExpressionBuilder, x: Value, dim: int, _half: bool = False) -> Value:
    shifted = elementwise("sub")(builder, x, highest(builder, x, [dim], True))
    powers = elementwise("exp")(builder, shifted)
    return multiplied(builder, powers, elementwise("reciprocal")(builder, summed(builder, powers, [dim], True)))


def _log_softmax(builder: ExpressionBuilder, x: Value, dim: int, _half: bool = False) -> Value:
    shifted = elementwise("sub")(builder, x, highest(builder, x, [dim], True))
    total = summed(builder, elementwise("exp")(builder, shifted), [dim], True)
    return elementwise("sub")(builder, shifted, elementwise("log")(builder, total))


OPERATIONS: dict[str, Callable[..., Any]] = {
    **{"sum": summed, "amax": highest, "amin": lowest, "mean": _mean, "any": _any},
    **{"var": _var, "var_mean": _var_mean, "std": _std, "std_mean": _std_mean, "linalg_vector_norm": _norm},
    **dict.fromkeys(("addmm", "addmv", "baddbmm"), _addmm),
    **{"mm": _matmul, "bmm": _matmul, "mv": _mv, "dot": _mv, "_softmax": _softmax, "_log_softmax": _log_softmax},
}
