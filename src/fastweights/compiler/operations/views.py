"""Lowering rules of operations that move numbers: views become index maps, and concatenations become regions."""

from collections.abc import Callable, Sequence
from typing import Any

from fastweights.compiler.ir.builder import ExpressionBuilder
from fastweights.compiler.ir.nodes import (
    Assemble,
    Constant,
    Index,
    Load,
    Map,
    Node,
    Region,
    Reshape,
    Shape,
    Value,
    identity,
    substitute,
    volume,
    whole,
)
from fastweights.compiler.operations.value import as_value


def viewed(builder: ExpressionBuilder, x: Value, shape: Sequence[int]) -> Value:
    """The same elements in the same order under another shape."""
    new = _full_shape(shape, volume(x.shape))
    old_axes = [a for a, n in enumerate(x.shape) if n > 1]
    new_axes = [a for a, n in enumerate(new) if n > 1]
    if [x.shape[a] for a in old_axes] == [new[a] for a in new_axes]:
        place = dict(zip(old_axes, new_axes, strict=True))
        mapping = [Index(place[a]) if a in place else Index(-1, 0, 0) for a in range(len(x.shape))]
        return Value(new, substitute(x.expression, mapping))
    if isinstance(x.expression, Constant):
        return Value(new, x.expression)
    base = _stored(as_value(x))
    return Value(new, Load(Reshape(new, base), identity(new)))


def _full_shape(shape: Sequence[int], total: int) -> Shape:
    known = -volume(shape) if -1 in shape else 1
    return tuple(total // known if n == -1 else n for n in shape)


def _stored(x: Value) -> Node:
    """A node with all elements of a value."""
    if isinstance(x.expression, Load) and x == whole(x.expression.node):
        return x.expression.node
    return Map(x.shape, x.expression)


def _permute(builder: ExpressionBuilder, x: Value, order: Sequence[int]) -> Value:
    rank = len(x.shape)
    order = [d % rank for d in order]
    mapping = [Index(-1, 0, 0) if x.shape[a] == 1 else Index(order.index(a)) for a in range(rank)]
    return Value(tuple(x.shape[d] for d in order), substitute(x.expression, mapping))


def _transpose(builder: ExpressionBuilder, x: Value, first: int = 0, second: int = 1) -> Value:
    order = list(range(len(x.shape)))
    if len(order) > 1:
        order[first], order[second] = order[second], order[first]
    return _permute(builder, x, order)


def _expand(builder: ExpressionBuilder, x: Value, shape: Sequence[int], implicit: bool = False) -> Value:
    offset = len(shape) - len(x.shape)
    full = tuple(x.shape[a - offset] if n == -1 else n for a, n in enumerate(shape))
    return Value(full, x.at(full))


def unsqueezed(builder: ExpressionBuilder, x: Value, dim: int) -> Value:
    """The value with a new axis of size 1."""
    dim = dim % (len(x.shape) + 1)
    return viewed(builder, x, (*x.shape[:dim], 1, *x.shape[dim:]))


def squeezed(builder: ExpressionBuilder, x: Value, dims: Any = None) -> Value:
    """The value without axes of size 1."""
    rank = len(x.shape)
    chosen = range(rank) if dims is None else [dims] if isinstance(dims, int) else dims
    gone = {d % rank for d in chosen} if rank else set()
    return viewed(builder, x, [n for a, n in enumerate(x.shape) if n > 1 or a not in gone])


def _select(builder: ExpressionBuilder, x: Value, dim: int, position: int) -> Value:
    dim, rank = dim % len(x.shape), len(x.shape)
    mapping = [
        Index(-1, 0, position % x.shape[dim]) if a == dim else Index(a - (a > dim)) if x.shape[a] > 1 else Index(-1, 0)
        for a in range(rank)
    ]
    return Value((*x.shape[:dim], *x.shape[dim + 1 :]), substitute(x.expression, mapping))


def _bounds(size: int, start: Any, end: Any, step: int) -> range:
    return range(*slice(start, end, step).indices(size))


def sliced(
    builder: ExpressionBuilder, x: Value, dim: int = 0, start: Any = None, end: Any = None, step: int = 1
) -> Value:
    """A slice along one axis."""
    dim = dim % len(x.shape)
    chosen = _bounds(x.shape[dim], start, end, step)
    shape = (*x.shape[:dim], len(chosen), *x.shape[dim + 1 :])
    mapping = [Index(a) if n > 1 else Index(-1, 0) for a, n in enumerate(x.shape)]
    mapping[dim] = Index(-1, 0, chosen.start) if len(chosen) == 1 else Index(dim, step, chosen.start)
    return Value(shape, substitute(x.expression, mapping))


def _unbind(builder: ExpressionBuilder, x: Value, dim: int = 0) -> tuple[Value, ...]:
    return tuple(_select(builder, x, dim, n) for n in range(x.shape[dim]))


def _split(builder: ExpressionBuilder, x: Value, sizes: Any, dim: int = 0) -> tuple[Value, ...]:
    total = x.shape[dim]
    if isinstance(sizes, int):
        sizes = [min(sizes, total - start) for start in range(0, total, sizes)]
    starts = [sum(sizes[:n]) for n in range(len(sizes))]
    return tuple(sliced(builder, x, dim, start, start + size) for start, size in zip(starts, sizes, strict=True))


def assembled(builder: ExpressionBuilder, shape: Shape, regions: Sequence[Region]) -> Value:
    """A value from its regions, which are written one after the other."""
    node = Assemble(shape, tuple(regions), line=builder.line)
    return Value(shape, Load(node, identity(shape)))


def _region(shape: Shape, x: Value, dim: int, start: int) -> Region:
    return Region(tuple(start if a == dim else 0 for a in range(len(shape))), x.shape, x.expression)


def joined(builder: ExpressionBuilder, parts: Sequence[Any], dim: int = 0) -> Value:
    """The concatenation of tensors along an axis."""
    parts = [as_value(p) for p in parts if volume(p.shape)]
    dim = dim % len(parts[0].shape)
    starts = [sum(p.shape[dim] for p in parts[:n]) for n in range(len(parts) + 1)]
    shape = (*parts[0].shape[:dim], starts[-1], *parts[0].shape[dim + 1 :])
    return assembled(builder, shape, [_region(shape, p, dim, s) for p, s in zip(parts, starts, strict=False)])


def padded(builder: ExpressionBuilder, x: Value, widths: Sequence[int], value: float = 0.0) -> Value:
    """The value padded with a number, or cut where a width is negative."""
    pairs = [(0, 0)] * (len(x.shape) - len(widths) // 2) + list(zip(widths[::2], widths[1::2], strict=True))[::-1]
    for dim, (before, after) in enumerate(pairs):
        x = sliced(builder, x, dim, max(0, -before), x.shape[dim] - max(0, -after))
    start = tuple(max(0, before) for before, _ in pairs)
    shape = tuple(n + max(0, before) + max(0, after) for n, (before, after) in zip(x.shape, pairs, strict=True))
    whole = Region((0,) * len(shape), shape, Constant(float(value)))
    return assembled(builder, shape, [whole, Region(start, x.shape, x.expression)])


def _put(builder: ExpressionBuilder, into: Value, x: Value, dim: int, chosen: range) -> Value:
    """`into` with the elements `chosen` of axis `dim` replaced. A step other than 1 becomes single elements."""
    whole = Region((0,) * len(into.shape), into.shape, into.expression)
    if chosen.step == 1:
        return assembled(builder, into.shape, [whole, _region(into.shape, x, dim, chosen.start)])
    each = [_region(into.shape, sliced(builder, x, dim, n, n + 1), dim, place) for n, place in enumerate(chosen)]
    return assembled(builder, into.shape, [whole, *each])


def _slice_scatter(
    builder: ExpressionBuilder, into: Any, x: Value, dim: int = 0, start: Any = None, end: Any = None, step: int = 1
) -> Value:
    dim = dim % len(into.shape)
    return _put(builder, into, x, dim, _bounds(into.shape[dim], start, end, step))


def _select_scatter(builder: ExpressionBuilder, into: Value, x: Value, dim: int, position: int) -> Value:
    dim, position = dim % len(into.shape), position % into.shape[dim]
    return _put(builder, into, unsqueezed(builder, x, dim), dim, range(position, position + 1))


def _zeros(shape: Sequence[int]) -> Value:
    return Value(tuple(shape), Constant(0.0))


def _new(builder: ExpressionBuilder, x: Value, shape: Sequence[int] = (), *_: Any, **__: Any) -> Value:
    """A tensor of zeros, also for operations that leave it uninitialised."""
    return _zeros(shape)


def _slice_backward(
    builder: ExpressionBuilder, x: Value, shape: Any, dim: int, start: int, end: int, step: int
) -> Value:
    return _slice_scatter(builder, _zeros(shape), x, dim, start, end, step)


def _select_backward(builder: ExpressionBuilder, x: Value, shape: Any, dim: int, position: int) -> Value:
    return _select_scatter(builder, _zeros(shape), x, dim, position)


def _flip(builder: ExpressionBuilder, x: Value, dims: Sequence[int]) -> Value:
    mapping = [Index(a) if n > 1 else Index(-1, 0) for a, n in enumerate(x.shape)]
    for dim in dims:
        dim %= len(x.shape)
        mapping[dim] = Index(dim, -1, x.shape[dim] - 1) if x.shape[dim] > 1 else Index(-1, 0)
    return Value(x.shape, substitute(x.expression, mapping))


OPERATIONS: dict[str, Callable[..., Any]] = {
    **{"view": viewed, "_unsafe_view": viewed, "reshape": viewed, "permute": _permute, "expand": _expand},
    **{"t": _transpose, "transpose": _transpose, "unsqueeze": unsqueezed, "squeeze": squeezed, "select": _select},
    **{"slice": sliced, "unbind": _unbind, "split": _split, "split_with_sizes": _split, "cat": joined, "flip": _flip},
    **{"constant_pad_nd": padded, "slice_scatter": _slice_scatter, "select_scatter": _select_scatter},
    **{"slice_backward": _slice_backward, "select_backward": _select_backward},
    **dict.fromkeys(("new_empty_strided", "new_empty", "new_zeros", "empty_like"), _new),
}
