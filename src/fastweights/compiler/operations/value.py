"""Numbers and masks: what operations are given, as values."""

from collections.abc import Sequence
from typing import Any

import torch

from fastweights.compiler.ir.builder import Graph
from fastweights.compiler.ir.functions import FUNCTIONS
from fastweights.compiler.ir.nodes import Apply, Constant, Expression, Shape, Value


def is_mask(value: Value) -> bool:
    """Whether it tells true from false, and is no number."""
    return isinstance(value.expression, Apply) and FUNCTIONS[value.expression.function].is_mask


def as_value(x: Any) -> Value:
    """A number or a tensor of numbers; of a mask, 1 where it holds and else 0."""
    if not isinstance(x, Value):
        return Value((), Constant(float(x)))
    if not is_mask(x):
        return x
    return Value(x.shape, Apply("where", (x.expression, Constant(1.0), Constant(0.0))))


def as_mask(x: Any) -> Value:
    """Whether a number or the numbers of a tensor are not 0."""
    value = x if isinstance(x, Value) else as_value(x)
    return value if is_mask(value) else Value(value.shape, Apply("ne", (value.expression, Constant(0.0))))


def shape_of(values: Sequence[Value]) -> Shape:
    """What the shapes of all are broadcast to."""
    return tuple(torch.broadcast_shapes(*(v.shape for v in values)))


def made(graph: Graph, shape: Shape, expression: Expression) -> Value:
    """A value that is kept under a name."""
    return Value(shape, graph.map(shape, expression))
