"""Converts the arguments of operations to values of numbers or masks."""

from collections.abc import Sequence
from typing import Any

import torch

from fastweights.compiler.ir.builder import ExpressionBuilder
from fastweights.compiler.ir.functions import FUNCTIONS
from fastweights.compiler.ir.nodes import Apply, Constant, Expression, Shape, Value


def is_mask(value: Value) -> bool:
    """Whether a value is a mask."""
    return isinstance(value.expression, Apply) and FUNCTIONS[value.expression.function].is_mask


def as_value(x: Any) -> Value:
    """A number or a tensor of numbers. A mask becomes 1 where it is true, else 0."""
    if not isinstance(x, Value):
        return Value((), Constant(float(x)))
    if not is_mask(x):
        return x
    return Value(x.shape, Apply("where", (x.expression, Constant(1.0), Constant(0.0))))


def as_mask(x: Any) -> Value:
    """The mask of the numbers that are not 0."""
    value = x if isinstance(x, Value) else as_value(x)
    return value if is_mask(value) else Value(value.shape, Apply("ne", (value.expression, Constant(0.0))))


def shape_of(values: Sequence[Value]) -> Shape:
    """The broadcast shape of all values."""
    return tuple(torch.broadcast_shapes(*(v.shape for v in values)))


def made(builder: ExpressionBuilder, shape: Shape, expression: Expression) -> Value:
    """The value of a new node."""
    return Value(shape, builder.map(shape, expression))
