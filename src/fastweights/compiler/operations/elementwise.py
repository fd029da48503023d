"""Operations that compute every number of a tensor from the numbers at its place."""

from collections.abc import Callable
from math import inf, pi
from typing import Any

import torch

from fastweights.compiler.errors import Unsupported
from fastweights.compiler.ir.builder import Graph
from fastweights.compiler.ir.functions import FUNCTIONS
from fastweights.compiler.ir.nodes import Apply, Constant, Value
from fastweights.compiler.operations.value import as_mask, as_value, is_mask, made, shape_of


def elementwise(function: str) -> Callable[..., Value]:
    """An operation that is a function of the vocabulary."""

    def rule(graph: Graph, *arguments: Any) -> Value:
        values = [as_value(a) for a in arguments]
        shape = shape_of(values)
        return made(graph, shape, Apply(function, tuple(v.at(shape) for v in values)))

    return rule


def _comparison(function: str, of: Callable[[Any], Value] = as_value) -> Callable[..., Value]:
    """A mask: never stored, computed wherever it is used."""

    def rule(graph: Graph, *arguments: Any) -> Value:
        values = [of(a) for a in arguments]
        shape = shape_of(values)
        return Value(shape, Apply(function, tuple(v.at(shape) for v in values)))

    return rule


def where(graph: Graph, condition: Value, a: Any, b: Any) -> Value:
    """a where the condition holds, else b."""
    values = [as_mask(condition), as_value(a), as_value(b)]
    shape = shape_of(values)
    return made(graph, shape, Apply("where", tuple(v.at(shape) for v in values)))


def multiplied(graph: Graph, *arguments: Any) -> Value:
    """The product of all."""
    values = [as_value(a) for a in arguments]
    shape = shape_of(values)
    return made(graph, shape, graph.product(shape, [v.at(shape) for v in values]))


def scaled(graph: Graph, x: Any, alpha: Any) -> Any:
    """alpha x."""
    return x if alpha == 1 else multiplied(graph, x, alpha)


def sum_of(function: str) -> Callable[..., Value]:
    """a + alpha b, or a - alpha b."""

    def rule(graph: Graph, a: Any, b: Any, alpha: Any = 1) -> Value:
        a, b = as_value(a), as_value(scaled(graph, b, alpha))
        if b.expression == Constant(0.0) or (a.expression == Constant(0.0) and function == "add"):
            kept, shape = (a if b.expression == Constant(0.0) else b), shape_of([a, b])
            return made(graph, shape, kept.at(shape))
        return elementwise(function)(graph, a, b)

    return rule


def _divided(graph: Graph, a: Any, b: Any, rounding_mode: str | None = None) -> Value:
    if rounding_mode == "floor":
        return elementwise("floor_divide")(graph, a, b)
    if rounding_mode == "trunc":
        return elementwise("trunc")(graph, elementwise("div")(graph, a, b))
    if not isinstance(b, Value) and b:
        return multiplied(graph, a, 1 / b)
    return elementwise("div")(graph, a, b)


def _pow(graph: Graph, x: Any, exponent: Any) -> Value:
    if exponent == 2:
        return multiplied(graph, x, x)
    if exponent == 3:
        return multiplied(graph, x, x, x)
    simple = {1: "identity", -1: "reciprocal", 0.5: "sqrt", -0.5: "rsqrt"}
    if not isinstance(exponent, Value) and exponent in simple:
        return elementwise(simple[exponent])(graph, x)
    return elementwise("pow")(graph, x, exponent)


# Autograd differentiates the following as they are written here. Each is written so that its gradient is PyTorch's at a
# kink too, and so that what is not chosen makes no NaN of it.


def _clamp(graph: Graph, x: Value, low: Any = None, high: Any = None, min: Any = None, max: Any = None) -> Value:
    low, high = low if low is not None else min, high if high is not None else max
    x = x if low is None else _bounded(graph, "lt", x, low)
    return x if high is None else _bounded(graph, "gt", x, high)


def _bounded(graph: Graph, beyond: str, x: Value, bound: Any) -> Value:
    """The bound where a number is beyond it; the bound itself is inside."""
    outside = _comparison(beyond)(graph, x, bound)
    if isinstance(bound, Value):
        outside = _comparison("logical_or", as_mask)(graph, outside, _is_nan(graph, as_value(bound)))
    return where(graph, outside, bound, x)


def _relu(graph: Graph, x: Value) -> Value:
    return where(graph, _comparison("le")(graph, x, 0.0), 0.0, x)


def _hardtanh(graph: Graph, x: Value, low: float = -1.0, high: float = 1.0) -> Value:
    inside = where(graph, _comparison("ge")(graph, x, high), high, x)
    return where(graph, _comparison("le")(graph, x, low), low, inside)


def _hardsigmoid(graph: Graph, x: Value) -> Value:
    return multiplied(graph, _hardtanh(graph, elementwise("add")(graph, x, 3.0), 0.0, 6.0), 1 / 6)


def _hardswish(graph: Graph, x: Value) -> Value:
    inside = multiplied(graph, x, elementwise("add")(graph, x, 3.0), 1 / 6)
    inside = where(graph, _comparison("ge")(graph, x, 3.0), x, inside)
    return where(graph, _comparison("le")(graph, x, -3.0), 0.0, inside)


def _softplus(graph: Graph, x: Value, beta: float = 1.0, threshold: float = 20.0) -> Value:
    is_large = _comparison("gt")(graph, multiplied(graph, x, beta), threshold)
    powers = elementwise("exp")(graph, multiplied(graph, where(graph, is_large, 0.0, x), beta))
    return where(graph, is_large, x, multiplied(graph, elementwise("log1p")(graph, powers), 1 / beta))


def _mish(graph: Graph, x: Value) -> Value:
    return multiplied(graph, x, elementwise("tanh")(graph, _softplus(graph, x)))


def _elu(graph: Graph, x: Value, alpha: float = 1.0, scale: float = 1.0, input_scale: float = 1.0) -> Value:
    is_positive = _comparison("gt")(graph, x, 0.0)
    powers = elementwise("expm1")(graph, multiplied(graph, where(graph, is_positive, 0.0, x), input_scale))
    return where(graph, is_positive, scaled(graph, x, scale), multiplied(graph, powers, alpha * scale))


def _celu(graph: Graph, x: Value, alpha: float = 1.0) -> Value:
    return _elu(graph, x, alpha, 1.0, 1 / alpha)


def _xlogy(graph: Graph, x: Any, y: Any) -> Value:
    x, y = as_value(x), as_value(y)
    outside = _comparison("logical_or", as_mask)(
        graph, _comparison("le")(graph, y, 0.0), _comparison("eq")(graph, y, inf)
    )
    is_nothing = _comparison("logical_and", as_mask)(graph, _comparison("eq")(graph, x, 0.0), outside)
    return multiplied(graph, x, elementwise("log")(graph, where(graph, is_nothing, 1.0, y)))


def _sinc(graph: Graph, x: Value) -> Value:
    is_zero = _comparison("eq")(graph, x, 0.0)
    angle = multiplied(graph, where(graph, is_zero, 1.0, x), pi)
    return where(graph, is_zero, 1.0, elementwise("div")(graph, elementwise("sin")(graph, angle), angle))


def root(graph: Graph, x: Value, exponent: float = 0.5) -> Value:
    """x to a power, whose gradient at 0 is 0: a root as of a norm."""
    is_positive = _comparison("gt")(graph, x, 0.0)
    return where(graph, is_positive, _pow(graph, where(graph, is_positive, x, 1.0), exponent), x)


def _same(graph: Graph, x: Value, *_: Any, **__: Any) -> Value:
    return x


def _to_copy(graph: Graph, x: Value, dtype: torch.dtype | None = None, **_: Any) -> Value:
    if dtype is None:
        return x
    if dtype == torch.bool:
        return as_mask(x)
    if not dtype.is_floating_point and not is_mask(x):
        raise Unsupported(f"a tensor of {dtype}", graph.line, "floating-point numbers")
    return as_value(x)


def _copy(graph: Graph, old: Value, new: Any, *_: Any) -> Value:
    return Value(old.shape, as_value(new).at(old.shape))


def _full_like(graph: Graph, x: Value, value: Any = 0.0, **_: Any) -> Value:
    return Value(x.shape, as_value(value).at(x.shape))


def _ones_like(graph: Graph, x: Value, **_: Any) -> Value:
    return _full_like(graph, x, 1.0)


def _zeros_like(graph: Graph, x: Value, **_: Any) -> Value:
    return _full_like(graph, x, 0.0)


def _is_nan(graph: Graph, x: Value) -> Value:
    return Value(x.shape, Apply("ne", (x.expression, x.expression)))


def _is_infinite(graph: Graph, x: Value) -> Value:
    return Value(x.shape, Apply("eq", (Apply("abs", (x.expression,)), Constant(float("inf")))))


def _shrunk_backward(graph: Graph, gradient: Value, x: Value, threshold: float) -> Value:
    """0 where a number was within the threshold."""
    outside = _comparison("gt")(graph, elementwise("abs")(graph, x), threshold)
    return where(graph, _comparison("logical_or", as_mask)(graph, outside, _is_nan(graph, x)), gradient, 0.0)


_SPECIAL = {"add", "sub", "mul", "div", "pow", "where", "identity"}
"""What has a rule of its own."""

OPERATIONS: dict[str, Callable[..., Any]] = {
    **{name: elementwise(name) for name, f in FUNCTIONS.items() if not f.is_mask and name not in _SPECIAL},
    **{name: _comparison(name) for name, f in FUNCTIONS.items() if f.is_mask and not name.startswith("logical_")},
    **{name: _comparison(name, as_mask) for name in FUNCTIONS if name.startswith("logical_")},
    **{f"bitwise_{name}": _comparison(f"logical_{name}", as_mask) for name in ("and", "or", "xor", "not")},
    **dict.fromkeys(("clone", "alias", "detach", "lift_fresh", "lift_fresh_copy", "contiguous"), _same),
    **{"add": sum_of("add"), "sub": sum_of("sub"), "mul": multiplied, "div": _divided, "pow": _pow, "where": where},
    **{"clamp": _clamp, "relu": _relu, "hardtanh": _hardtanh, "hardsigmoid": _hardsigmoid, "hardswish": _hardswish},
    **{"softplus": _softplus, "mish": _mish, "elu": _elu, "celu": _celu, "sinc": _sinc, "xlogy": _xlogy},
    **{"isnan": _is_nan, "isinf": _is_infinite, "_to_copy": _to_copy},
    **{"softshrink_backward": _shrunk_backward, "hardshrink_backward": _shrunk_backward},
    **{"copy": _copy, "copy_": _copy, "full_like": _full_like, "ones_like": _ones_like, "zeros_like": _zeros_like},
}
