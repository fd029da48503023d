"""Operations that ask where a number lies: indices, positions of extrema, diagonals, sums so far.

Indices that are constant are runs of numbers that follow each other; one that is computed is the position of an
extremum, and compared with all positions. Constant indices are given as tensors, everything else as values.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from fastweights.compiler.errors import Unsupported
from fastweights.compiler.ir.builder import Graph
from fastweights.compiler.ir.nodes import (
    Apply,
    Constant,
    Index,
    Load,
    Map,
    Region,
    Shape,
    Table,
    Value,
    identity,
    substitute,
    volume,
)
from fastweights.compiler.operations.elementwise import OPERATIONS as ELEMENTWISE
from fastweights.compiler.operations.elementwise import sum_of, where
from fastweights.compiler.operations.sums import highest, lowest, summed
from fastweights.compiler.operations.value import as_value, made
from fastweights.compiler.operations.views import assembled, joined, sliced, unsqueezed, viewed

MOST = 1 << 16
"""The most numbers that a sum so far may look at, where PyTorch looks at each once."""
RUNS = 256
"""The most pieces that an index may name: each is a loop of its own."""
ONE_HOT = "select, slices or a product with a one-hot vector"
TRIANGULAR = "a product with a lower triangular matrix of ones, or keep the sum in the state"


def _computed(graph: Graph) -> Unsupported:
    return Unsupported("an index that is computed", graph.line, ONE_HOT)


def _counting(size: int) -> Value:
    """0, 1, 2, ..."""
    if size == 1:
        return Value((1,), Constant(0.0))
    return Value((size,), Load(Table((size,), tuple(map(float, range(size)))), identity((size,))))


def _counting_along(rank: int, dim: int, size: int) -> Value:
    """The same along one of `rank` axes."""
    return viewed(Graph(), _counting(size), [size if a == dim else 1 for a in range(rank)])


def _places(shape: Shape) -> Tensor:
    """Where every number of a tensor lies."""
    return torch.arange(volume(shape)).reshape(shape)


def _runs(graph: Graph, places: Tensor) -> Iterator[tuple[int, int, int]]:
    """Where places that follow each other begin, in the order given: their first one, their number, and the first."""
    numbers = places.flatten().tolist()
    begins = [n for n, place in enumerate(numbers) if n == 0 or place != numbers[n - 1] + 1]
    if len(begins) > RUNS:
        raise Unsupported(f"an index of {len(begins)} separate places", graph.line, ONE_HOT)
    for begin, end in zip(begins, [*begins[1:], len(numbers)], strict=True):
        yield begin, end - begin, numbers[begin]


def _taken(graph: Graph, x: Value, places: Tensor) -> Value:
    """The numbers of x, seen as one row, that lie at `places`."""
    row = viewed(graph, x, (volume(x.shape),))
    parts = [sliced(graph, row, 0, first, first + count) for _, count, first in _runs(graph, places)]
    return (
        viewed(graph, joined(graph, parts), tuple(places.shape)) if parts else Value(tuple(places.shape), x.expression)
    )


def _put(graph: Graph, into: Value, places: Tensor, x: Value) -> Value:
    """`into`, seen as one row, with the numbers of x at `places`, all of them different."""
    row = Value((volume(into.shape),), viewed(graph, into, (volume(into.shape),)).expression)
    given = viewed(graph, Value(tuple(places.shape), x.at(tuple(places.shape))), (places.numel(),))
    regions = [
        Region((first,), (count,), sliced(graph, given, 0, begin, begin + count).expression)
        for begin, count, first in _runs(graph, places)
    ]
    return viewed(graph, assembled(graph, row.shape, [Region((0,), row.shape, row.expression), *regions]), into.shape)


def _added(graph: Graph, into: Value, places: Tensor, x: Value) -> Value:
    """`into` with the numbers of x added at `places`: in as many turns as a place comes up."""
    given = viewed(graph, Value(tuple(places.shape), x.at(tuple(places.shape))), (places.numel(),))
    for turn in _turns(places.flatten().tolist()):
        chosen = torch.tensor(turn)
        part = _taken(graph, given, chosen)
        there = _put(graph, Value(into.shape, Constant(0.0)), places.flatten()[chosen], part)
        into = sum_of("add")(graph, into, there)
    return into


def _turns(places: Sequence[int]) -> list[list[int]]:
    """Which of the places are named for the first time, for the second, and so on."""
    turns, seen = list[list[int]](), dict[int, int]()
    for n, place in enumerate(places):
        seen[place] = seen.get(place, -1) + 1
        turns += [[]] if seen[place] == len(turns) else []
        turns[seen[place]].append(n)
    return turns


def _index_select(graph: Graph, x: Value, dim: int, index: Any) -> Value:
    if isinstance(index, Value):
        raise _computed(graph)
    dim = dim % len(x.shape)
    parts = [sliced(graph, x, dim, first, first + count) for _, count, first in _runs(graph, index % x.shape[dim])]
    return joined(graph, parts, dim)


def _index(graph: Graph, x: Value, indices: Sequence[Any]) -> Value:
    given = [n for n, index in enumerate(indices) if index is not None]
    if any(isinstance(index, Value) for index in indices):
        raise _computed(graph)
    first = indices[given[0]]
    if len(given) == 1 and first.ndim == 1 and first.dtype != torch.bool and first.numel():
        return _index_select(graph, x, given[0], first)
    return _taken(graph, x, _places(x.shape)[_key(indices)])


def _key(indices: Sequence[Any]) -> tuple[Any, ...]:
    return tuple(slice(None) if index is None else index for index in indices)


def _index_put(graph: Graph, into: Value, indices: Sequence[Any], x: Value, accumulate: bool = False) -> Value:
    (mask, *rest) = indices
    if isinstance(mask, Value) and not rest and not accumulate and volume(x.shape) == 1:
        spread = Value((*mask.shape, *[1] * (len(into.shape) - len(mask.shape))), mask.expression)
        return where(graph, spread, Value((), x.at(())) if not x.shape else viewed(graph, x, ()), into)
    if any(isinstance(index, Value) for index in indices):
        raise _computed(graph)
    return (_added if accumulate else _put_last)(graph, into, _places(into.shape)[_key(indices)], x)


def _put_last(graph: Graph, into: Value, places: Tensor, x: Value) -> Value:
    """Of two numbers for one place, the last."""
    last = sorted({place: n for n, place in enumerate(places.flatten().tolist())}.values())
    if not last:
        return into
    given = viewed(graph, Value(tuple(places.shape), x.at(tuple(places.shape))), (places.numel(),))
    chosen = torch.tensor(last)
    return _put(graph, into, places.flatten()[chosen], _taken(graph, given, chosen))


def _bound(graph: Graph, index: Value) -> float:
    """What a computed index is below: PyTorch would say if it lay outside, and a kernel cannot."""
    found = index.expression.definition if isinstance(index.expression, Load) else None
    inside = found.expression if isinstance(found, Map) else None
    if isinstance(inside, Apply) and inside.function == "remainder" and isinstance(inside.arguments[1], Constant):
        return max(inside.arguments[1].value, 0) or float("inf")
    return graph.positions.get(found, float("inf")) if found is not None else float("inf")


def _hits(graph: Graph, x: Value, dim: int, index: Value) -> Value:
    """Where along an axis the one position is that an index of size 1 names."""
    dim = dim % len(x.shape)
    others = [n for a, n in enumerate(x.shape) if a != dim] == [n for a, n in enumerate(index.shape) if a != dim]
    if not (_bound(graph, index) <= x.shape[dim] and index.shape[dim] == 1 and others):
        raise _computed(graph)
    return ELEMENTWISE["eq"](graph, _counting_along(len(x.shape), dim, x.shape[dim]), index)


def _gather(graph: Graph, x: Value, dim: int, index: Any, sparse_grad: bool = False) -> Value:
    if isinstance(index, Tensor):
        return _taken(graph, x, _places(x.shape).gather(dim, index))
    return summed(graph, where(graph, _hits(graph, x, dim, index), x, 0.0), [dim], True)


def _scatter(graph: Graph, into: Value, dim: int, index: Any, x: Any, accumulate: bool = False) -> Value:
    x = as_value(x)
    if isinstance(index, Value):
        hits = _hits(graph, into, dim, index)
        return where(graph, hits, sum_of("add")(graph, into, x) if accumulate else x, into)
    places = _places(into.shape).gather(dim, index)
    for axis, n in enumerate(index.shape if x.shape else ()):
        x = sliced(graph, x, axis, 0, n)
    return (_added if accumulate else _put_last)(graph, into, places, x)


def _scatter_add(graph: Graph, into: Value, dim: int, index: Any, x: Value) -> Value:
    return _scatter(graph, into, dim, index, x, True)


def _index_add(graph: Graph, into: Value, dim: int, index: Any, x: Value, alpha: Any = 1) -> Value:
    if isinstance(index, Value):
        raise _computed(graph)
    return _added(graph, into, _places(into.shape).index_select(dim, index), ELEMENTWISE["mul"](graph, x, alpha))


def _position(of: Callable[..., Value]) -> Callable[..., Value]:
    """The first position of an extremum, or of a NaN."""

    def rule(graph: Graph, x: Value, dim: int | None = None, keepdim: bool = False) -> Value:
        shape = x.shape
        if dim is None:
            x, dim = viewed(graph, x, (volume(x.shape),)), 0
        dim = dim % len(x.shape)
        count = _counting_along(len(x.shape), dim, x.shape[dim])
        best = ELEMENTWISE["eq"](graph, x, of(graph, x, [dim], True))
        best = ELEMENTWISE["logical_or"](graph, best, ELEMENTWISE["isnan"](graph, x))
        first = lowest(graph, where(graph, best, count, float(x.shape[dim] - 1)), [dim], keepdim)
        if isinstance(first.expression, Load):
            graph.positions[first.expression.definition] = x.shape[dim]
        return viewed(graph, first, [1] * len(shape)) if keepdim and len(shape) != len(first.shape) else first

    return rule


def _extremum(of: Callable[..., Value]) -> Callable[..., Any]:
    """A maximum or minimum; along an axis, with its position."""

    def rule(graph: Graph, x: Value, dim: int | None = None, keepdim: bool = False) -> Any:
        if dim is None or not x.shape:
            return of(graph, x) if dim is None else (x, Value((), Constant(0.0)))
        position = _position(of)(graph, x, dim, keepdim)
        if x.shape[dim] == 1:
            return of(graph, x, [dim], keepdim), position
        # Not the extremum itself: of equal numbers the first one alone has the gradient.
        best = _gather(graph, x, dim, _position(of)(graph, x, dim, True))
        return viewed(graph, best, position.shape), position

    return rule


def _diagonal(graph: Graph, x: Value, offset: int = 0, first: int = 0, second: int = 1) -> Value:
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


def _diagonal_scatter(graph: Graph, into: Value, x: Value, offset: int = 0, first: int = 0, second: int = 1) -> Value:
    return _put(graph, into, _places(into.shape).diagonal(offset, first, second), x)


def _diagonal_backward(graph: Graph, x: Value, shape: Sequence[int], *where_: int) -> Value:
    return _diagonal_scatter(graph, Value(tuple(shape), Constant(0.0)), x, *where_)


def _unfold(graph: Graph, x: Value, dim: int, size: int, step: int) -> Value:
    return _taken(graph, x, _places(x.shape).unfold(dim, size, step))


def _as_strided(graph: Graph, x: Value, *how: Any) -> Value:
    return _taken(graph, x, _places(x.shape).as_strided(*how))


def _as_strided_scatter(graph: Graph, into: Value, x: Value, *how: Any) -> Value:
    return _put(graph, into, _places(into.shape).as_strided(*how), x)


def _repeat(graph: Graph, x: Value, times: Sequence[int]) -> Value:
    for _ in range(len(times) - len(x.shape)):
        x = unsqueezed(graph, x, 0)
    for dim, count in enumerate(times):
        x = joined(graph, [x] * count, dim) if count != 1 else x
    return x


def _cumsum(graph: Graph, x: Value, dim: int, dtype: torch.dtype | None = None) -> Value:
    x = as_value(x)
    if not x.shape:
        return x
    rank, dim = len(x.shape), dim % len(x.shape)
    size = x.shape[dim]
    if volume(x.shape) * size > MOST:
        raise Unsupported("a sum so far of so many numbers", graph.line, TRIANGULAR)
    others = [Index(-1, 0, 0) if n == 1 else Index(rank if a == dim else a) for a, n in enumerate(x.shape)]
    own, other = (substitute(_counting(size).expression, [Index(a)]) for a in (dim, rank))
    until = Apply("where", (Apply("le", (other, own)), substitute(x.expression, others), Constant(0.0)))
    return made(graph, x.shape, graph.reduce("sum", (*x.shape, size), until, rank)) if size > 1 else x


OPERATIONS: dict[str, Callable[..., Any]] = {
    **{"index": _index, "index_select": _index_select, "index_put": _index_put, "index_add": _index_add},
    **{"gather": _gather, "scatter": _scatter, "scatter_add": _scatter_add, "unfold": _unfold, "repeat": _repeat},
    **{"argmax": _position(highest), "argmin": _position(lowest), "max": _extremum(highest), "min": _extremum(lowest)},
    **{"diagonal": _diagonal, "diagonal_scatter": _diagonal_scatter, "diagonal_backward": _diagonal_backward},
    **{"as_strided": _as_strided, "as_strided_scatter": _as_strided_scatter, "cumsum": _cumsum},
}
