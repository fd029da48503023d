"""From a traced graph to definitions: views become index maps, products become sums, the rest is elementwise."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from fastweights.compiler.algebra import Graph
from fastweights.compiler.ir import (
    Apply,
    Constant,
    Definition,
    Expression,
    Index,
    Load,
    Region,
    Shape,
    identity,
    loads,
    substitute,
    volume,
)
from fastweights.compiler.trace import Trace
from fastweights.compiler.unsupported import Unsupported

TABLE = 1 << 16
"""The most numbers that a constant tensor of a cell may have: they stand in the source of the kernel."""


class Value(NamedTuple):
    """A traced tensor: its shape, and what it is at every index."""

    shape: Shape
    expression: Expression

    def at(self, shape: Shape) -> Expression:
        """Broadcast to `shape`."""
        offset = len(shape) - len(self.shape)
        mapping = [Index(-1, 0, 0) if n == 1 else Index(a + offset) for a, n in enumerate(self.shape)]
        return substitute(self.expression, mapping)


@dataclass(frozen=True)
class Step:
    """One step and its gradient: what goes in, and the value of what comes out, each by role."""

    state: dict[str, Definition]
    inputs: dict[str, Definition]
    params: dict[str, Definition]
    d_state: dict[str, Definition]
    d_y: Definition
    new_state: dict[str, Value]
    y: Value
    gradients: dict[str, dict[str, Value]]
    graph: Graph


def lower(trace: Trace) -> Step:
    """Raises `Unsupported` for an operation outside the subset."""
    lowering = Lowering(trace)
    results = lowering.run()
    given = iter(lowering.given)
    state, inputs, params, d_state = (
        {name: next(given) for name in names} for names in (trace.state, trace.inputs, trace.params, trace.state)
    )
    rest = iter(results)
    new_state = {name: next(rest) for name in trace.state}
    y = next(rest)
    kinds = {"state": trace.state, "inputs": trace.inputs, "params": trace.params}
    gradients = {kind: {name: next(rest) for name in names} for kind, names in kinds.items()}
    return Step(state, inputs, params, d_state, next(given), new_state, y, gradients, lowering.graph)


class Lowering:
    """Walks the graph; `values` holds what every node became: a `Value`, a constant tensor, or a tuple of them."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.graph = Graph()
        self.values: dict[torch.fx.Node, Any] = {}
        self.given: list[Definition] = []

    def run(self) -> list[Value]:
        """The results of the graph."""
        for node in self.trace.graph.graph.nodes:
            if node.op == "output":
                return [self._tensor(self._value(x)) for x in node.args[0]]
            self.graph.line = self.trace.lines.get(node.name, "")
            self.values[node] = self._node(node)
        raise AssertionError("a graph ends with its output")

    def _node(self, node: torch.fx.Node) -> Any:
        if node.op == "placeholder":
            shape = tuple(node.meta["val"].shape)
            self.given.append(Definition("input", shape, line=str(node.target)))
            return Value(shape, Load(self.given[-1], identity(shape)))
        if node.op == "get_attr":
            return getattr(self.trace.graph, str(node.target))
        arguments = [self._value(a) for a in node.args]
        keywords = {name: self._value(a) for name, a in node.kwargs.items()}
        if not any(_holds_value(a) for a in (*arguments, *keywords.values())):
            return node.target(*arguments, **keywords)  # type: ignore[operator]
        return self._call(node, arguments, keywords)

    def _value(self, argument: Any) -> Any:
        if isinstance(argument, torch.fx.Node):
            return self.values[argument]
        if isinstance(argument, list | tuple):
            return type(argument)(self._value(a) for a in argument)
        return argument

    def _call(self, node: torch.fx.Node, arguments: list[Any], keywords: dict[str, Any]) -> Any:
        name = str(node.target).removeprefix("aten.").partition(".")[0]
        if name == "<built-in function getitem>":
            return arguments[0][arguments[1]]
        rule = OPERATIONS.get(name)
        if rule is None:
            line = self.trace.lines.get(node.name, "") or f"the gradient of {self._origin(node)}"
            raise Unsupported(f"the operation {node.target} is not one that compiles", line, INSTEAD.get(name, OTHERS))
        result = rule(self.graph, *[self._made(a) for a in arguments], **keywords)
        return result

    def _origin(self, node: torch.fx.Node) -> str:
        """The line of the nearest operand that the cell itself computed."""
        queue = list(node.all_input_nodes)
        while queue:
            near = queue.pop(0)
            if self.trace.lines.get(near.name):
                return self.trace.lines[near.name]
            queue.extend(near.all_input_nodes)
        return "the step"

    def _made(self, argument: Any) -> Any:
        if isinstance(argument, Tensor):
            return self._tensor(argument)
        if isinstance(argument, list | tuple) and any(isinstance(a, Tensor | Value) for a in argument):
            return [self._made(a) for a in argument]
        return argument

    def _tensor(self, value: Any) -> Value:
        """A constant tensor as a value: a constant if all its numbers are one, else a table."""
        if isinstance(value, Value):
            return value
        assert isinstance(value, Tensor), value
        numbers = value.double().flatten().tolist()
        shape = tuple(value.shape)
        if len({*map(repr, numbers)}) == 1:
            constant = Constant(numbers[0])
            return Value(shape, Apply("ne", (constant, Constant(0.0))) if value.dtype == torch.bool else constant)
        if len(numbers) > TABLE:
            raise Unsupported(f"a constant tensor of {len(numbers)} numbers", self.graph.line, "a field of the params")
        table = Load(Definition("table", shape, numbers=tuple(numbers)), identity(shape))
        return Value(shape, Apply("ne", (table, Constant(0.0))) if value.dtype == torch.bool else table)


def _holds_value(argument: Any) -> bool:
    if isinstance(argument, list | tuple) and not isinstance(argument, Value):
        return any(_holds_value(a) for a in argument)
    return isinstance(argument, Value)


OTHERS = "it with arithmetic, products, sums, views and elementwise functions (see docs/writing-a-rule.md)"
INSTEAD = {
    "cumsum": "a product with a lower triangular matrix of ones, or keep the sum in the state",
    "sort": "amax, or a softmax",
    "topk": "amax, or a softmax",
    "index": "select, slices or a product with a one-hot vector",
    "gather": "a product with a one-hot vector",
    "linalg_inv_ex": "a product with an inverse that the state keeps",
    "rand": "noise as one of the inputs",
    "randn": "noise as one of the inputs",
    "native_dropout": "a mask as one of the inputs",
}


MASKS = {"eq", "ne", "lt", "le", "gt", "ge", "logical_and", "logical_or", "logical_not"}


def _is_mask(value: Value) -> bool:
    return isinstance(value.expression, Apply) and value.expression.function in MASKS


def _as_value(x: Any) -> Value:
    """A number or a tensor of numbers; of a mask, 1 where it holds and else 0."""
    if not isinstance(x, Value):
        return Value((), Constant(float(x)))
    if not _is_mask(x):
        return x
    return Value(x.shape, Apply("where", (x.expression, Constant(1.0), Constant(0.0))))


def _as_mask(x: Any) -> Value:
    value = x if isinstance(x, Value) else _as_value(x)
    return value if _is_mask(value) else Value(value.shape, Apply("ne", (value.expression, Constant(0.0))))


def _shape_of(values: Sequence[Value]) -> Shape:
    return tuple(torch.broadcast_shapes(*(v.shape for v in values)))


def _made(graph: Graph, shape: Shape, expression: Expression) -> Value:
    return Value(shape, graph.map(shape, expression))


def elementwise(function: str) -> Callable[..., Value]:
    """An operation that is a function of the runtime header."""

    def rule(graph: Graph, *arguments: Any, **_: Any) -> Value:
        values = [_as_value(a) for a in arguments]
        shape = _shape_of(values)
        return _made(graph, shape, Apply(function, tuple(v.at(shape) for v in values)))

    return rule


def _mask(function: str, of: Callable[[Any], Value] = _as_value) -> Callable[..., Value]:
    """A comparison: never stored, computed wherever it is used."""

    def rule(graph: Graph, *arguments: Any) -> Value:
        values = [of(a) for a in arguments]
        shape = _shape_of(values)
        return Value(shape, Apply(function, tuple(v.at(shape) for v in values)))

    return rule


def _where(graph: Graph, condition: Value, a: Any, b: Any) -> Value:
    values = [_as_mask(condition), _as_value(a), _as_value(b)]
    shape = _shape_of(values)
    return _made(graph, shape, Apply("where", tuple(v.at(shape) for v in values)))


def _mul(graph: Graph, *arguments: Any) -> Value:
    values = [_as_value(a) for a in arguments]
    shape = _shape_of(values)
    return _made(graph, shape, graph.product(shape, [v.at(shape) for v in values]))


def _scaled(graph: Graph, x: Any, alpha: Any) -> Any:
    return x if alpha == 1 else _mul(graph, x, alpha)


def _sum_of(function: str) -> Callable[..., Value]:
    def rule(graph: Graph, a: Any, b: Any, alpha: Any = 1) -> Value:
        a, b = _as_value(a), _as_value(_scaled(graph, b, alpha))
        if b.expression == Constant(0.0) or (a.expression == Constant(0.0) and function == "add"):
            kept, shape = (a if b.expression == Constant(0.0) else b), _shape_of([a, b])
            return _made(graph, shape, kept.at(shape))
        return elementwise(function)(graph, a, b)

    return rule


def _reduction(kind: str) -> Callable[..., Value]:
    def rule(graph: Graph, x: Value, dims: Any = None, keepdim: bool = False, **_: Any) -> Value:
        x, rank = _as_value(x), len(x.shape)
        chosen = range(rank) if dims is None or dims == [] else [dims] if isinstance(dims, int) else dims
        reduced = {d % rank for d in chosen} if rank else set()
        expression = x.expression
        for definition in loads(expression):
            definition.once |= kind != "sum"
        for axis in sorted(reduced, reverse=True):
            if x.shape[axis] > 1:
                expression = graph.reduce(kind, x.shape, expression, axis)
        kept = [a for a in range(rank) if keepdim or a not in reduced]
        place = [Index(kept.index(a)) if a not in reduced and x.shape[a] > 1 else Index(-1, 0, 0) for a in range(rank)]
        shape = tuple(1 if a in reduced else x.shape[a] for a in kept)
        return _made(graph, shape, substitute(expression, place))

    return rule


_sum, _amax, _amin = _reduction("sum"), _reduction("max"), _reduction("min")


def _mean(graph: Graph, x: Value, dims: Any = None, keepdim: bool = False, **_: Any) -> Value:
    total = _sum(graph, x, dims, keepdim)
    return _mul(graph, total, volume(total.shape) / volume(x.shape))


def _var(graph: Graph, x: Value, dims: Any = None, correction: Any = 1, keepdim: bool = False) -> Value:
    off = elementwise("sub")(graph, x, _mean(graph, x, dims, True))
    total = _sum(graph, _mul(graph, off, off), dims, keepdim)
    count = volume(x.shape) // volume(total.shape)
    return _mul(graph, total, 1 / (count - (1 if correction is None else correction)))


def _var_mean(graph: Graph, x: Value, dims: Any = None, **keywords: Any) -> tuple[Value, Value]:
    return _var(graph, x, dims, **keywords), _mean(graph, x, dims, keywords.get("keepdim", False))


def _matmul(graph: Graph, a: Value, b: Value) -> Value:
    """`[..., i, k] @ [..., k, j]` as a sum of products over k, the last axis of `[..., i, j, k]`."""
    *batch, rows, inner = a.shape
    shape = (*batch, rows, b.shape[-1], inner)
    n = len(batch)
    first = substitute(a.expression, _places([*range(n), n, n + 2], a.shape))
    second = substitute(b.expression, _places([*range(n), n + 2, n + 1], b.shape))
    product = _made(graph, shape, graph.product(shape, [first, second]))
    return _sum(graph, product, [-1])


def _addmm(graph: Graph, c: Value, a: Value, b: Value, beta: Any = 1, alpha: Any = 1) -> Value:
    product = (_matmul if len(b.shape) > 1 else _mv)(graph, a, b)
    return _sum_of("add")(graph, _scaled(graph, c, beta), product, alpha)


def _places(order: list[int], shape: Shape) -> list[Index]:
    return [Index(-1, 0, 0) if size == 1 else Index(place) for place, size in zip(order, shape, strict=True)]


def _mv(graph: Graph, a: Value, b: Value) -> Value:
    return _sum(graph, _mul(graph, a, b), [-1])


def _softmax(graph: Graph, x: Value, dim: int, _half: bool = False) -> Value:
    shifted = elementwise("sub")(graph, x, _amax(graph, x, [dim], True))
    powers = elementwise("exp")(graph, shifted)
    return _mul(graph, powers, elementwise("reciprocal")(graph, _sum(graph, powers, [dim], True)))


def _log_softmax(graph: Graph, x: Value, dim: int, _half: bool = False) -> Value:
    shifted = elementwise("sub")(graph, x, _amax(graph, x, [dim], True))
    total = _sum(graph, elementwise("exp")(graph, shifted), [dim], True)
    return elementwise("sub")(graph, shifted, elementwise("log")(graph, total))


def _div(graph: Graph, a: Any, b: Any, rounding_mode: Any = None) -> Value:
    if not isinstance(b, Value):
        return _mul(graph, a, 1 / b) if b else elementwise("div")(graph, a, b)
    return elementwise("div")(graph, a, b)


def _pow(graph: Graph, x: Any, exponent: Any) -> Value:
    if exponent == 2:
        return _mul(graph, x, x)
    if exponent == 3:
        return _mul(graph, x, x, x)
    simple = {1: "identity", -1: "reciprocal", 0.5: "sqrt", -0.5: "rsqrt"}
    if not isinstance(exponent, Value) and exponent in simple:
        return elementwise(simple[exponent])(graph, x)
    return elementwise("pow")(graph, x, exponent)


def _clamp(graph: Graph, x: Value, low: Any = None, high: Any = None, min: Any = None, max: Any = None) -> Value:
    low, high = low if low is not None else min, high if high is not None else max
    x = x if low is None else elementwise("maximum")(graph, x, low)
    return x if high is None else elementwise("minimum")(graph, x, high)


def _relu(graph: Graph, x: Value) -> Value:
    return elementwise("maximum")(graph, x, 0.0)


def _same(graph: Graph, x: Value, *_: Any, **__: Any) -> Value:
    return x


def _to_copy(graph: Graph, x: Value, dtype: torch.dtype | None = None, **_: Any) -> Value:
    if dtype is not None and not (dtype.is_floating_point or dtype == torch.bool):
        raise Unsupported(f"a tensor of {dtype}", graph.line, "floating-point numbers")
    return _as_mask(x) if dtype == torch.bool else _as_value(x) if dtype is not None else x


def _view(graph: Graph, x: Value, shape: Sequence[int]) -> Value:
    new = _full_shape(shape, volume(x.shape))
    old_axes = [a for a, n in enumerate(x.shape) if n > 1]
    new_axes = [a for a, n in enumerate(new) if n > 1]
    if [x.shape[a] for a in old_axes] == [new[a] for a in new_axes]:
        place = dict(zip(old_axes, new_axes, strict=True))
        mapping = [Index(place[a]) if a in place else Index(-1, 0, 0) for a in range(len(x.shape))]
        return Value(new, substitute(x.expression, mapping))
    if isinstance(x.expression, Constant):
        return Value(new, x.expression)
    base = _stored(x)
    return Value(new, Load(Definition("alias", new, base=base), identity(new)))


def _full_shape(shape: Sequence[int], total: int) -> Shape:
    known = -volume(shape) if -1 in shape else 1
    return tuple(total // known if n == -1 else n for n in shape)


def _stored(x: Value) -> Definition:
    """A definition that lies in memory in the order of its axes."""
    expression = x.expression
    if isinstance(expression, Load) and expression.definition.shape == x.shape:
        definition = expression.definition
        if expression.index == identity(x.shape):
            definition.contiguous = True
            return definition
    return Definition("map", x.shape, expression, contiguous=True)


def _permute(graph: Graph, x: Value, order: Sequence[int]) -> Value:
    rank = len(x.shape)
    order = [d % rank for d in order]
    mapping = [Index(-1, 0, 0) if x.shape[a] == 1 else Index(order.index(a)) for a in range(rank)]
    return Value(tuple(x.shape[d] for d in order), substitute(x.expression, mapping))


def _transpose(graph: Graph, x: Value, first: int = 0, second: int = 1) -> Value:
    order = list(range(len(x.shape)))
    if len(order) > 1:
        order[first], order[second] = order[second], order[first]
    return _permute(graph, x, order)


def _expand(graph: Graph, x: Value, shape: Sequence[int], implicit: bool = False) -> Value:
    offset = len(shape) - len(x.shape)
    full = tuple(x.shape[a - offset] if n == -1 else n for a, n in enumerate(shape))
    return Value(full, x.at(full))


def _unsqueeze(graph: Graph, x: Value, dim: int) -> Value:
    dim = dim % (len(x.shape) + 1)
    return _view(graph, x, (*x.shape[:dim], 1, *x.shape[dim:]))


def _squeeze(graph: Graph, x: Value, dims: Any = None) -> Value:
    rank = len(x.shape)
    chosen = range(rank) if dims is None else [dims] if isinstance(dims, int) else dims
    gone = {d % rank for d in chosen} if rank else set()
    return _view(graph, x, [n for a, n in enumerate(x.shape) if n > 1 or a not in gone])


def _select(graph: Graph, x: Value, dim: int, position: int) -> Value:
    dim, rank = dim % len(x.shape), len(x.shape)
    mapping = [
        Index(-1, 0, position % x.shape[dim]) if a == dim else Index(a - (a > dim)) if x.shape[a] > 1 else Index(-1, 0)
        for a in range(rank)
    ]
    return Value((*x.shape[:dim], *x.shape[dim + 1 :]), substitute(x.expression, mapping))


def _bounds(size: int, start: Any, end: Any, step: int) -> range:
    return range(*slice(start, end, step).indices(size))


def _slice(graph: Graph, x: Value, dim: int = 0, start: Any = None, end: Any = None, step: int = 1) -> Value:
    dim = dim % len(x.shape)
    chosen = _bounds(x.shape[dim], start, end, step)
    shape = (*x.shape[:dim], len(chosen), *x.shape[dim + 1 :])
    mapping = [Index(a) if n > 1 else Index(-1, 0) for a, n in enumerate(x.shape)]
    mapping[dim] = Index(-1, 0, chosen.start) if len(chosen) == 1 else Index(dim, step, chosen.start)
    return Value(shape, substitute(x.expression, mapping))


def _unbind(graph: Graph, x: Value, dim: int = 0) -> tuple[Value, ...]:
    return tuple(_select(graph, x, dim, n) for n in range(x.shape[dim]))


def _split(graph: Graph, x: Value, sizes: Any, dim: int = 0) -> tuple[Value, ...]:
    total = x.shape[dim]
    if isinstance(sizes, int):
        sizes = [min(sizes, total - start) for start in range(0, total, sizes)]
    starts = [sum(sizes[:n]) for n in range(len(sizes))]
    return tuple(_slice(graph, x, dim, start, start + size) for start, size in zip(starts, sizes, strict=True))


def _assembled(graph: Graph, shape: Shape, regions: Sequence[Region]) -> Value:
    kept = Definition("assemble", shape, regions=tuple(regions), line=graph.line)
    return Value(shape, Load(kept, identity(shape)))


def _region(shape: Shape, x: Value, dim: int, start: int) -> Region:
    return Region(tuple(start if a == dim else 0 for a in range(len(shape))), x.shape, x.expression)


def _cat(graph: Graph, parts: Sequence[Any], dim: int = 0) -> Value:
    parts = [_as_value(p) for p in parts if volume(p.shape)]
    dim = dim % len(parts[0].shape)
    starts = [sum(p.shape[dim] for p in parts[:n]) for n in range(len(parts) + 1)]
    shape = (*parts[0].shape[:dim], starts[-1], *parts[0].shape[dim + 1 :])
    return _assembled(graph, shape, [_region(shape, p, dim, s) for p, s in zip(parts, starts, strict=False)])


def _pad(graph: Graph, x: Value, widths: Sequence[int], value: float = 0.0) -> Value:
    pairs = [(0, 0)] * (len(x.shape) - len(widths) // 2) + list(zip(widths[::2], widths[1::2], strict=True))[::-1]
    for dim, (before, after) in enumerate(pairs):
        x = _slice(graph, x, dim, max(0, -before), x.shape[dim] - max(0, -after))
    start = tuple(max(0, before) for before, _ in pairs)
    shape = tuple(n + max(0, before) + max(0, after) for n, (before, after) in zip(x.shape, pairs, strict=True))
    whole = Region((0,) * len(shape), shape, Constant(float(value)))
    return _assembled(graph, shape, [whole, Region(start, x.shape, x.expression)])


def _put(graph: Graph, into: Value, x: Value, dim: int, chosen: range) -> Value:
    """`into` with the elements `chosen` of axis `dim` replaced; a step other than 1 goes element by element."""
    whole = Region((0,) * len(into.shape), into.shape, into.expression)
    if chosen.step == 1:
        return _assembled(graph, into.shape, [whole, _region(into.shape, x, dim, chosen.start)])
    each = [_region(into.shape, _slice(graph, x, dim, n, n + 1), dim, place) for n, place in enumerate(chosen)]
    return _assembled(graph, into.shape, [whole, *each])


def _slice_scatter(
    graph: Graph, into: Any, x: Value, dim: int = 0, start: Any = None, end: Any = None, step: int = 1
) -> Value:
    dim = dim % len(into.shape)
    return _put(graph, into, x, dim, _bounds(into.shape[dim], start, end, step))


def _select_scatter(graph: Graph, into: Value, x: Value, dim: int, position: int) -> Value:
    dim, position = dim % len(into.shape), position % into.shape[dim]
    return _put(graph, into, _unsqueeze(graph, x, dim), dim, range(position, position + 1))


def _zeros(shape: Sequence[int]) -> Value:
    return Value(tuple(shape), Constant(0.0))


def _slice_backward(graph: Graph, x: Value, shape: Any, dim: int, start: int, end: int, step: int) -> Value:
    return _slice_scatter(graph, _zeros(shape), x, dim, start, end, step)


def _select_backward(graph: Graph, x: Value, shape: Any, dim: int, position: int) -> Value:
    return _select_scatter(graph, _zeros(shape), x, dim, position)


def _flip(graph: Graph, x: Value, dims: Sequence[int]) -> Value:
    mapping = [Index(a) if n > 1 else Index(-1, 0) for a, n in enumerate(x.shape)]
    for dim in dims:
        dim %= len(x.shape)
        mapping[dim] = Index(dim, -1, x.shape[dim] - 1) if x.shape[dim] > 1 else Index(-1, 0)
    return Value(x.shape, substitute(x.expression, mapping))


def _index_select(graph: Graph, x: Value, dim: int, chosen: Any) -> Value:
    positions = getattr(chosen.expression, "definition", None)
    if positions is not None and positions.kind == "table":
        return _cat(graph, [_slice(graph, x, dim, int(n), int(n) + 1) for n in positions.numbers], dim)
    if isinstance(chosen.expression, Constant):
        return _slice(graph, x, dim, int(chosen.expression.value), int(chosen.expression.value) + 1)
    raise Unsupported("an index that depends on a value", graph.line, INSTEAD["index"])


def _copy(graph: Graph, old: Value, new: Any, *_: Any) -> Value:
    return Value(old.shape, _as_value(new).at(old.shape))


def _full_like(graph: Graph, x: Value, value: Any = 0.0, **_: Any) -> Value:
    return Value(x.shape, _as_value(value).at(x.shape))


def _ones_like(graph: Graph, x: Value, **_: Any) -> Value:
    return _full_like(graph, x, 1.0)


def _zeros_like(graph: Graph, x: Value, **_: Any) -> Value:
    return _full_like(graph, x, 0.0)


OPERATIONS: dict[str, Callable[..., Any]] = {
    **{name: elementwise(name) for name in ("exp", "log", "sqrt", "rsqrt", "tanh", "sigmoid", "neg", "abs", "sign")},
    **{name: elementwise(name) for name in ("sin", "cos", "expm1", "log1p", "erf", "reciprocal", "floor", "atan2")},
    **{name: elementwise(name) for name in ("maximum", "minimum", "sinh", "cosh", "tan", "asin", "acos", "atan")},
    **{name: elementwise(name) for name in ("exp2", "log2", "ceil", "round", "trunc", "fmod", "asinh", "acosh")},
    **{name: _mask(name) for name in ("eq", "ne", "lt", "le", "gt", "ge")},
    **{name: _mask(name, _as_mask) for name in ("logical_and", "logical_or", "logical_not")},
    **{f"bitwise_{name}": _mask(f"logical_{name}", _as_mask) for name in ("and", "or", "not")},
    **dict.fromkeys(("clone", "alias", "detach", "lift_fresh", "lift_fresh_copy", "contiguous"), _same),
    "_to_copy": _to_copy,
    **{"add": _sum_of("add"), "sub": _sum_of("sub"), "mul": _mul, "div": _div, "pow": _pow, "clamp": _clamp},
    **{"relu": _relu, "where": _where, "sum": _sum, "amax": _amax, "amin": _amin, "mean": _mean, "var": _var},
    "var_mean": _var_mean,
    **dict.fromkeys(("addmm", "addmv", "baddbmm"), _addmm),
    **{"mm": _matmul, "bmm": _matmul, "mv": _mv, "dot": _mv, "_softmax": _softmax, "_log_softmax": _log_softmax},
    **{"view": _view, "_unsafe_view": _view, "reshape": _view, "permute": _permute, "expand": _expand},
    **{"t": _transpose, "transpose": _transpose, "unsqueeze": _unsqueeze, "squeeze": _squeeze, "select": _select},
    **{"slice": _slice, "unbind": _unbind, "split": _split, "split_with_sizes": _split, "cat": _cat, "flip": _flip},
    **{"constant_pad_nd": _pad, "slice_scatter": _slice_scatter, "select_scatter": _select_scatter},
    **{"slice_backward": _slice_backward, "select_backward": _select_backward, "index_select": _index_select},
    **{"copy": _copy, "copy_": _copy, "full_like": _full_like, "ones_like": _ones_like, "zeros_like": _zeros_like},
}
