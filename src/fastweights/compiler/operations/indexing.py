"""Lowering rules of operations that depend on positions: indexing, arg-extrema, diagonals, cumulative sums.

Constant indices become ranges. A computed index is the position of an extremum, which is compared with all positions.
Rules receive constant indices as tensors and all other arguments as values.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from fastweights.compiler.errors import Unsupported
from fastweights.compiler.ir.builder import ExpressionBuilder
from fastweights.compiler.ir.nodes import (
    Apply,
    Constant,
    ConstantTensor,
    Index,
    Load,
    Map,
    Region,
    Shape,
    Value,
    identity,
    substitute,
    volume,
)
from fastweights.compiler.operations.elementwise import OPERATIONS as ELEMENTWISE
from fastweights.compiler.operations.elementwise import sum_of, where
from fastweights.compiler.operations.sums import highest, lowest, summed
from fastweights.compiler.operations.value import as_value, made
from fastweights.compiler.operations.views import assembled, joined, padded, sliced, unsqueezed, viewed

MOST = 1 << 16
"""Largest number of elements that a cumulative sum reads, since it is lowered to one sum per element."""
RUNS = 256
"""Largest number of ranges of an index, since each becomes a loop."""
ONE_HOT = "select, slices or a product with a one-hot vector"
TRIANGULAR = "a product with a lower triangular matrix of ones, or keep the sum in the state"


def _computed(builder: ExpressionBuilder) -> Unsupported:
    return Unsupported("an index that is computed", builder.line, ONE_HOT)


def _counting(size: int) -> Value:
    """The numbers 0, 1, 2, ... up to a size."""
    if size == 1:
        return Value((1,), Constant(0.0))
    return Value((size,), Load(ConstantTensor((size,), tuple(map(float, range(size)))), identity((size,))))


def _counting_along(rank: int, dim: int, size: int) -> Value:
    """The numbers 0, 1, 2, ... along one of `rank` axes."""
    return viewed(ExpressionBuilder(), _counting(size), [size if a == dim else 1 for a in range(rank)])


def _places(shape: Shape) -> Tensor:
    """The position of every element of a flattened tensor."""
    return torch.arange(volume(shape)).reshape(shape)


def _runs(builder: ExpressionBuilder, places: Tensor) -> Iterator[tuple[int, int, int]]:
    """The ranges of consecutive positions: their offset in the list, their length, and their first position."""
    numbers = places.flatten().tolist()
    begins = [n for n, place in enumerate(numbers) if n == 0 or place != numbers[n - 1] + 1]
    if len(begins) > RUNS:
        raise Unsupported(f"an index of {len(begins)} separate places", builder.line, ONE_HOT)
    for begin, end in zip(begins, [*begins[1:], len(numbers)], strict=True):
        yield begin, end - begin, numbers[begin]


def _taken(builder: ExpressionBuilder, x: Value, places: Tensor) -> Value:
    """The elements of the flattened x at `places`."""
    row = viewed(builder, x, (volume(x.shape),))
    parts = [sliced(builder, row, 0, first, first + count) for _, count, first in _runs(builder, places)]
    return (
        viewed(builder, joined(builder, parts), tuple(places.shape))
        if parts
        else Value(tuple(places.shape), x.expression)
    )


def _put(builder: ExpressionBuilder, into: Value, places: Tensor, x: Value) -> Value:
    """The flattened `into` with the elements of x at `places`, which are all different."""
    row = Value((volume(into.shape),), viewed(builder, into, (volume(into.shape),)).expression)
    values = viewed(builder, Value(tuple(places.shape), x.at(tuple(places.shape))), (places.numel(),))
    regions = [
        Region((first,), (count,), sliced(builder, values, 0, begin, begin + count).expression)
        for begin, count, first in _runs(builder, places)
    ]
    return viewed(
        builder, assembled(builder, row.shape, [Region((0,), row.shape, row.expression), *regions]), into.shape
    )


def _added(builder: ExpressionBuilder, into: Value, places: Tensor, x: Value) -> Value:
    """`into` with the elements of x added at `places`. A repeated position is added in several rounds."""
    values = viewed(builder, Value(tuple(places.shape), x.at(tuple(places.shape))), (places.numel(),))
    for turn in _turns(places.flatten().tolist()):
        chosen = torch.tensor(turn)
        part = _taken(builder, values, chosen)
        there = _put(builder, Value(into.shape, Constant(0.0)), places.flatten()[chosen], part)
        into = sum_of("add")(builder, into, there)
    return into


def _turns(places: Sequence[int]) -> list[list[int]]:
    """The offsets of the positions that occur for the first time, for the second time, and so on."""
    turns, turn_of = list[list[int]](), dict[int, int]()
    for n, place in enumerate(places):
        turn_of[place] = turn_of.get(place, -1) + 1
        turns += [[]] if turn_of[place] == len(turns) else []
        turns[turn_of[place]].append(n)
    return turns


def _index_select(builder: ExpressionBuilder, x: Value, dim: int, index: Any) -> Value:
    if isinstance(index, Value):
        raise _computed(builder)
    dim = dim % len(x.shape)
    parts = [sliced(builder, x, dim, first, first + count) for _, count, first in _runs(builder, index % x.shape[dim])]
    return joined(builder, parts, dim)


def _index(builder: ExpressionBuilder, x: Value, indices: Sequence[Any]) -> Value:
    indexed = [n for n, index in enumerate(indices) if index is not None]
    if any(isinstance(index, Value) for index in indices):
        raise _computed(builder)
    first = indices[indexed[0]]
    if len(indexed) == 1 and first.ndim == 1 and first.dtype != torch.bool and first.numel():
        return _index_select(builder, x, indexed[0], first)
    return _taken(builder, x, _places(x.shape)[_key(indices)])


def _key(indices: Sequence[Any]) -> tuple[Any, ...]:
    return tuple(slice(None) if index is None else index for index in indices)


def _index_put(
    builder: ExpressionBuilder, into: Value, indices: Sequence[Any], x: Value, accumulate: bool = False
) -> Value:
    (mask, *rest) = indices
    if isinstance(mask, Value) and not rest and not accumulate and volume(x.shape) == 1:
        spread = Value((*mask.shape, *[1] * (len(into.shape) - len(mask.shape))), mask.expression)
        return where(builder, spread, Value((), x.at(())) if not x.shape else viewed(builder, x, ()), into)
    if any(isinstance(index, Value) for index in indices):
        raise _computed(builder)
    return (_added if accumulate else _put_last)(builder, into, _places(into.shape)[_key(indices)], x)


def _put_last(builder: ExpressionBuilder, into: Value, places: Tensor, x: Value) -> Value:
    """The flattened `into` with the elements of x at `places`. The last element of a repeated position counts."""
    last = sorted({place: n for n, place in enumerate(places.flatten().tolist())}.values())
    if not last:
        return into
    values = viewed(builder, Value(tuple(places.shape), x.at(tuple(places.shape))), (places.numel(),))
    chosen = torch.tensor(last)
    return _put(builder, into, places.flatten()[chosen], _taken(builder, values, chosen))


def _bound(builder: ExpressionBuilder, index: Value) -> float:
    """The exclusive upper bound of a computed index. PyTorch checks indices at run time, but a kernel cannot."""
    node = index.expression.node if isinstance(index.expression, Load) else None
    inside = node.expression if isinstance(node, Map) else None
    if isinstance(inside, Apply) and inside.function == "remainder" and isinstance(inside.arguments[1], Constant):
        return max(inside.arguments[1].value, 0) or float("inf")
    return builder.positions.get(node, float("inf")) if node is not None else float("inf")


def _hits(builder: ExpressionBuilder, x: Value, dim: int, index: Value) -> Value:
    """A mask of the position along an axis that an index of size 1 selects."""
    dim = dim % len(x.shape)
    others = [n for a, n in enumerate(x.shape) if a != dim] == [n for a, n in enumerate(index.shape) if a != dim]
    if not (_bound(builder, index) <= x.shape[dim] and index.shape[dim] == 1 and others):
        raise _computed(builder)
    return ELEMENTWISE["eq"](builder, _counting_along(len(x.shape), dim, x.shape[dim]), index)


def _gather(builder: ExpressionBuilder, x: Value, dim: int, index: Any, sparse_grad: bool = False) -> Value:
    if isinstance(index, Tensor):
        return _taken(builder, x, _places(x.shape).gather(dim, index))
    return summed(builder, where(builder, _hits(builder, x, dim, index), x, 0.0), [dim], True)


def _scatter(builder: ExpressionBuilder, into: Value, dim: int, index: Any, x: Any, accumulate: bool = False) -> Value:
    x = as_value(x)
    if isinstance(index, Value):
        hits = _hits(builder, into, dim, index)
        return where(builder, hits, sum_of("add")(builder, into, x) if accumulate else x, into)
    places = _places(into.shape).gather(dim, index)
    for axis, n in enumerate(index.shape if x.shape else ()):
        x = sliced(builder, x, axis, 0, n)
    return (_added if accumulate else _put_last)(builder, into, places, x)


def _scatter_add(builder: ExpressionBuilder, into: Value, dim: int, index: Any, x: Value) -> Value:
    return _scatter(builder, into, dim, index, x, True)


def _index_add(builder: ExpressionBuilder, into: Value, dim: int, index: Any, x: Value, alpha: Any = 1) -> Value:
    if isinstance(index, Value):
        raise _computed(builder)
    return _added(builder, into, _places(into.shape).index_select(dim, index), ELEMENTWISE["mul"](builder, x, alpha))


def _position(of: Callable[..., Value]) -> Callable[..., Value]:
    """The first position of an extremum, or of a NaN."""

    def rule(builder: ExpressionBuilder, x: Value, dim: int | None = None, keepdim: bool = False) -> Value:
        shape = x.shape
        if dim is None:
            x, dim = viewed(builder, x, (volume(x.shape),)), 0
        dim = dim % len(x.shape)
        count = _counting_along(len(x.shape), dim, x.shape[dim])
        best = ELEMENTWISE["eq"](builder, x, of(builder, x, [dim], True))
        best = ELEMENTWISE["logical_or"](builder, best, ELEMENTWISE["isnan"](builder, x))
        first = lowest(builder, where(builder, best, count, float(x.shape[dim] - 1)), [dim], keepdim)
        if isinstance(first.expression, Load):
            builder.positions[first.expression.node] = x.shape[dim]
        return viewed(builder, first, [1] * len(shape)) if keepdim and len(shape) != len(first.shape) else first

    return rule


def _extremum(of: Callable[..., Value]) -> Callable[..., Any]:
    """A maximum or minimum; along an axis, with its position."""

    def rule(builder: ExpressionBuilder, x: Value, dim: int | None = None, keepdim: bool = False) -> Any:
        if dim is None or not x.shape:
            return of(builder, x) if dim is None else (x, Value((), Constant(0.0)))
        position = _position(of)(builder, x, dim, keepdim)
        if x.shape[dim] == 1:
            return of(builder, x, [dim], keepdim), position
        # Not the extremum itself: of equal numbers the first one alone has the gradient.
        best = _gather(builder, x, dim, _position(of)(builder, x, dim, True))
        return viewed(builder, best, position.shape), position

    return rule


def _diagonal(builder: ExpressionBuilder, x: Value, offset: int = 0, first: int = 0, second: int = 1) -> Value:
    rank = len(x.shape)
    first, second = first % rank, second % rank
    others = [a for a in range(rank) if a not in (first, second)]
    length = max(0, min(x.shape[first] + min(offset, 0), x.shape[second] - max(offset, 0)))
    shape = (*(x.shape[a] for a in others), length)
    begin = {first: max(-offset, 0), second: max(offset, 0)}
    mapping = [
        (Index(rank - 2, 1, begin[a]) if length > 1 else Index(-1, 0, begin[a]))
        if a in begin
        else (Index(others.index(a)) if x.shape[a] > 1 else Index(-1, 0, 0))
        for a in range(rank)
    ]
    return Value(shape, substitute(x.expression, mapping))


def _diagonal_scatter(
    builder: ExpressionBuilder, into: Value, x: Value, offset: int = 0, first: int = 0, second: int = 1
) -> Value:
    """`into` with x on a diagonal. Every element compares its row with its column: one loop for any size."""
    shape, rank = into.shape, len(into.shape)
    first, second = first % rank, second % rank
    others = [a for a in range(rank) if a not in (first, second)]
    length = max(0, min(shape[first] + min(offset, 0), shape[second] - max(offset, 0)))
    if not length:
        return into
    x = Value((*(shape[a] for a in others), length), x.at((*(shape[a] for a in others), length)))
    before = max(-offset, 0)
    by_row = padded(builder, x, (before, shape[first] - before - length))
    axes = [Index(a) if shape[a] > 1 else Index(-1, 0, 0) for a in (*others, first)]
    row, column = (_counting_along(rank, a, shape[a]) for a in (first, second))
    on_diagonal = ELEMENTWISE["eq"](builder, column, sum_of("add")(builder, row, float(offset)))
    return where(builder, on_diagonal, Value(shape, substitute(by_row.expression, axes)), into)


def _diagonal_backward(builder: ExpressionBuilder, x: Value, shape: Sequence[int], *where_: int) -> Value:
    return _diagonal_scatter(builder, Value(tuple(shape), Constant(0.0)), x, *where_)


def _unfold(builder: ExpressionBuilder, x: Value, dim: int, size: int, step: int) -> Value:
    return _taken(builder, x, _places(x.shape).unfold(dim, size, step))


def _as_strided(builder: ExpressionBuilder, x: Value, *how: Any) -> Value:
    return _taken(builder, x, _places(x.shape).as_strided(*how))


def _as_strided_scatter(builder: ExpressionBuilder, into: Value, x: Value, *how: Any) -> Value:
    return _put(builder, into, _places(into.shape).as_strided(*how), x)


def _repeat(builder: ExpressionBuilder, x: Value, times: Sequence[int]) -> Value:
    for _ in range(len(times) - len(x.shape)):
        x = unsqueezed(builder, x, 0)
    for dim, count in enumerate(times):
        x = joined(builder, [x] * count, dim) if count != 1 else x
    return x


def _cumsum(builder: ExpressionBuilder, x: Value, dim: int, dtype: torch.dtype | None = None) -> Value:
    x = as_value(x)
    if not x.shape:
        return x
    rank, dim = len(x.shape), dim % len(x.shape)
    size = x.shape[dim]
    if volume(x.shape) * size > MOST:
        raise Unsupported("a sum so far of so many numbers", builder.line, TRIANGULAR)
    others = [Index(-1, 0, 0) if n == 1 else Index(rank if a == dim else a) for a, n in enumerate(x.shape)]
    own, other = (substitute(_counting(size).expression, [Index(a)]) for a in (dim, rank))
    until = Apply("where", (Apply("le", (other, own)), substitute(x.expression, others), Constant(0.0)))
    return made(builder, x.shape, builder.reduce("sum", (*x.shape, size), until, rank)) if size > 1 else x


OPERATIONS: dict[str, Callable[..., Any]] = {
    **{"index": _index, "index_select": _index_select, "index_put": _index_put, "index_add": _index_add},
    **{"gather": _gather, "scatter": _scatter, "scatter_add": _scatter_add, "unfold": _unfold, "repeat": _repeat},
    **{"argmax": _position(highest), "argmin": _position(lowest), "max": _extremum(highest), "min": _extremum(lowest)},
    **{"diagonal": _diagonal, "diagonal_scatter": _diagonal_scatter, "diagonal_backward": _diagonal_backward},
    **{"as_strided": _as_strided, "as_strided_scatter": _as_strided_scatter, "cumsum": _cumsum},
}
