"""Lowering rules of elementwise operations."""

from collections.abc import Callable
from math import inf, pi
from typing import Any

import torch

from fastweights.compiler.errors import Unsupported
from fastweights.compiler.ir.builder import ExpressionBuilder
from fastweights.compiler.ir.functions import FUNCTIONS
from fastweights.compiler.ir.nodes import Apply, Constant, Value
from fastweights.compiler.operations.value import as_mask, as_value, is_mask, made, shape_of


def elementwise(function: str) -> Callable[..., Value]:
    """The rule of an operation that is a function of the intermediate representation."""

    def rule(builder: ExpressionBuilder, *arguments: Any) -> Value:
        values = [as_value(a) for a in arguments]
        shape = shape_of(values)
        return made(builder, shape, Apply(function, tuple(v.at(shape) for v in values)))

    return rule


def _comparison(function: str, of: Callable[[Any], Value] = as_value) -> Callable[..., Value]:
    """The rule of a comparison. Masks are not stored: every reader computes them."""

    def rule(builder: ExpressionBuilder, *arguments: Any) -> Value:
        values = [of(a) for a in arguments]
        shape = shape_of(values)
        return Value(shape, Apply(function, tuple(v.at(shape) for v in values)))

    return rule


def where(builder: ExpressionBuilder, condition: Value, a: Any, b: Any) -> Value:
    """a where the condition holds, else b."""
    values = [as_mask(condition), as_value(a), as_value(b)]
    shape = shape_of(values)
    return made(builder, shape, Apply("where", tuple(v.at(shape) for v in values)))


def multiplied(builder: ExpressionBuilder, *arguments: Any) -> Value:
    """The product of all."""
    values = [as_value(a) for a in arguments]
    shape = shape_of(values)
    return made(builder, shape, builder.product(shape, [v.at(shape) for v in values]))


def scaled(builder: ExpressionBuilder, x: Any, alpha: Any) -> Any:
    """alpha x."""
    return x if alpha == 1 else multiplied(builder, x, alpha)


def sum_of(function: str) -> Callable[..., Value]:
    """a + alpha b, or a - alpha b."""

    def rule(builder: ExpressionBuilder, a: Any, b: Any, alpha: Any = 1) -> Value:
        a, b = as_value(a), as_value(scaled(builder, b, alpha))
        if b.expression == Constant(0.0) or (a.expression == Constant(0.0) and function == "add"):
            operand, shape = (a if b.expression == Constant(0.0) else b), shape_of([a, b])
            return made(builder, shape, operand.at(shape))
        return elementwise(function)(builder, a, b)

    return rule


def _divided(builder: ExpressionBuilder, a: Any, b: Any, rounding_mode: str | None = None) -> Value:
    if rounding_mode == "floor":
        return elementwise("floor_divide")(builder, a, b)
    if rounding_mode == "trunc":
        return elementwise("trunc")(builder, elementwise("div")(builder, a, b))
    if not isinstance(b, Value) and b:
        return multiplied(builder, a, 1 / b)
    return elementwise("div")(builder, a, b)


def _pow(builder: ExpressionBuilder, x: Any, exponent: Any) -> Value:
    if exponent == 2:
        return multiplied(builder, x, x)
    if exponent == 3:
        return multiplied(builder, x, x, x)
    simple = {1: "identity", -1: "reciprocal", 0.5: "sqrt", -0.5: "rsqrt"}
    if not isinstance(exponent, Value) and exponent in simple:
        return elementwise(simple[exponent])(builder, x)
    return elementwise("pow")(builder, x, exponent)


# Autograd differentiates the following as they are written here. Each is written so that its gradient is PyTorch's at a
# kink too, and so that a branch that is not chosen causes no NaN.


def _clamp(
    builder: ExpressionBuilder, x: Value, low: Any = None, high: Any = None, min: Any = None, max: Any = None
) -> Value:
    low, high = low if low is not None else min, high if high is not None else max
    x = x if low is None else _bounded(builder, "lt", x, low)
    return x if high is None else _bounded(builder, "gt", x, high)


def _bounded(builder: ExpressionBuilder, beyond: str, x: Value, bound: Any) -> Value:
    """The bound where a number is beyond it. A number equal to the bound is inside."""
    outside = _comparison(beyond)(builder, x, bound)
    if isinstance(bound, Value):
        outside = _comparison("logical_or", as_mask)(builder, outside, _is_nan(builder, as_value(bound)))
    return where(builder, outside, bound, x)


def _relu(builder: ExpressionBuilder, x: Value) -> Value:
    return where(builder, _comparison("le")(builder, x, 0.0), 0.0, x)


def _hardtanh(builder: ExpressionBuilder, x: Value, low: float = -1.0, high: float = 1.0) -> Value:
    inside = where(builder, _comparison("ge")(builder, x, high), high, x)
    return where(builder, _comparison("le")(builder, x, low), low, inside)


def _hardsigmoid(builder: ExpressionBuilder, x: Value) -> Value:
    return multiplied(builder, _hardtanh(builder, elementwise("add")(builder, x, 3.0), 0.0, 6.0), 1 / 6)


def _hardswish(builder: ExpressionBuilder, x: Value) -> Value:
    inside = multiplied(builder, x, elementwise("add")(builder, x, 3.0), 1 / 6)
    inside = where(builder, _comparison("ge")(builder, x, 3.0), x, inside)
    return where(builder, _comparison("le")(builder, x, -3.0), 0.0, inside)


def _softplus(builder: ExpressionBuilder, x: Value, beta: float = 1.0, threshold: float = 20.0) -> Value:
    is_large = _comparison("gt")(builder, multiplied(builder, x, beta), threshold)
    powers = elementwise("exp")(builder, multiplied(builder, where(builder, is_large, 0.0, x), beta))
    return where(builder, is_large, x, multiplied(builder, elementwise("log1p")(builder, powers), 1 / beta))


def _mish(builder: ExpressionBuilder, x: Value) -> Value:
    return multiplied(builder, x, elementwise("tanh")(builder, _softplus(builder, x)))


def _elu(
    builder: ExpressionBuilder, x: Value, alpha: float = 1.0, scale: float = 1.0, input_scale: float = 1.0
) -> Value:
    is_positive = _comparison("gt")(builder, x, 0.0)
    powers = elementwise("expm1")(builder, multiplied(builder, where(builder, is_positive, 0.0, x), input_scale))
    return where(builder, is_positive, scaled(builder, x, scale), multiplied(builder, powers, alpha * scale))


def _celu(builder: ExpressionBuilder, x: Value, alpha: float = 1.0) -> Value:
    return _elu(builder, x, alpha, 1.0, 1 / alpha)


def _xlogy(builder: ExpressionBuilder, x: Any, y: Any) -> Value:
    x, y = as_value(x), as_value(y)
    outside = _comparison("logical_or", as_mask)(
        builder, _comparison("le")(builder, y, 0.0), _comparison("eq")(builder, y, inf)
    )
    is_nothing = _comparison("logical_and", as_mask)(builder, _comparison("eq")(builder, x, 0.0), outside)
    return multiplied(builder, x, elementwise("log")(builder, where(builder, is_nothing, 1.0, y)))


def _sinc(builder: ExpressionBuilder, x: Value) -> Value:
    is_zero = _comparison("eq")(builder, x, 0.0)
    angle = multiplied(builder, where(builder, is_zero, 1.0, x), pi)
    return where(builder, is_zero, 1.0, elementwise("div")(builder, elementwise("sin")(builder, angle), angle))


def root(builder: ExpressionBuilder, x: Value, exponent: float = 0.5) -> Value:
    """x to a power, with gradient 0 at 0 as for a norm."""
    is_positive = _comparison("gt")(builder, x, 0.0)
    return where(builder, is_positive, _pow(builder, where(builder, is_positive, x, 1.0), exponent), x)


def _same(builder: ExpressionBuilder, x: Value, *_: Any, **__: Any) -> Value:
    return x


def _to_copy(builder: ExpressionBuilder, x: Value, dtype: torch.dtype | None = None, **_: Any) -> Value:
    if dtype is None:
        return x
    if dtype == torch.bool:
        return as_mask(x)
    if not dtype.is_floating_point and not is_mask(x):
        raise Unsupported(f"a tensor of {dtype}", builder.line, "floating-point numbers")
    return as_value(x)


def _copy(builder: ExpressionBuilder, old: Value, new: Any, *_: Any) -> Value:
    return Value(old.shape, as_value(new).at(old.shape))


def _full_like(builder: ExpressionBuilder, x: Value, value: Any = 0.0, **_: Any) -> Value:
    return Value(x.shape, as_value(value).at(x.shape))


def _ones_like(builder: ExpressionBuilder, x: Value, **_: Any) -> Value:
    return _full_like(builder, x, 1.0)


def _zeros_like(builder: ExpressionBuilder, x: Value, **_: Any) -> Value:
    return _full_like(builder, x, 0.0)


def _is_nan(builder: ExpressionBuilder, x: Value) -> Value:
    return Value(x.shape, Apply("ne", (x.expression, x.expression)))


def _is_infinite(builder: ExpressionBuilder, x: Value) -> Value:
    return Value(x.shape, Apply("eq", (Apply("abs", (x.expression,)), Constant(float("inf")))))


def _shrunk_backward(builder: ExpressionBuilder, gradient: Value, x: Value, threshold: float) -> Value:
    """The gradient of a shrinkage: 0 where a number was within the threshold."""
    outside = _comparison("gt")(builder, elementwise("abs")(builder, x), threshold)
    return where(builder, _comparison("logical_or", as_mask)(builder, outside, _is_nan(builder, x)), gradient, 0.0)


_SPECIAL = {"add", "sub", "mul", "div", "pow", "where", "identity"}
"""Functions with a rule of their own."""

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
