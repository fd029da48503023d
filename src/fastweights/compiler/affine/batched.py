"""Prints values as a PyTorch function over any leading axes: all time steps, heads and batch members at once.

The axes of the nodes are the last axes of the tensors, and leading axes are broadcast. The function has no loop and
does not read the sizes of leading axes, so that PyTorch can trace it.
"""

from collections.abc import Callable, Sequence
from math import inf, nan
from typing import Any, NamedTuple

import torch
from torch import Tensor

from fastweights.compiler.ir.functions import ARITHMETIC, FUNCTIONS
from fastweights.compiler.ir.interpret import REDUCTIONS
from fastweights.compiler.ir.nodes import (
    Apply,
    Assemble,
    Constant,
    ConstantTensor,
    Expression,
    Index,
    Load,
    Map,
    Node,
    Reduce,
    Reshape,
    Shape,
    Value,
    ancestors,
    axes,
    loads,
)

LETTERS = "abcdefgh"


class Batched(NamedTuple):
    """A function from the leading shape and one tensor per given node to one tensor per value, and its source text."""

    run: Callable[..., tuple[Tensor, ...]]
    text: str


def batched(values: Sequence[Value], placeholders: Sequence[Node]) -> Batched:
    """The function that computes values from given nodes."""
    return Writer(placeholders).function(values)


class Writer:
    """Prints one line of Python per node."""

    def __init__(self, placeholders: Sequence[Node]) -> None:
        self.names: dict[Node, str] = {d: f"x{n}" for n, d in enumerate(placeholders)}
        self.lines: list[str] = []
        self.namespace: dict[str, Any] = {"torch": torch, "spread": spread, "joined": joined, "number": number}
        self.namespace |= {"inf": inf, "nan": nan}
        # Every function has its own name, so that a guard can tell that the text keeps its meaning.
        self.namespace |= {f"{name}_": function.meaning for name, function in FUNCTIONS.items()}
        self.namespace |= {f"{name}_of": reduction for name, reduction in REDUCTIONS.items()}

    def function(self, values: Sequence[Value]) -> Batched:
        """Compiles the text of the function."""
        arguments = ", ".join(["front", *self.names.values()])
        for node in sorted(ancestors(values, self.names), key=lambda d: d.serial):
            if node not in self.names:
                name = f"t{len(self.names)}"
                self.lines.append(f"{name} = {self._node(node)}")
                self.names[node] = name
        results = "".join(f"{self._spread(v.expression, v.shape)}, " for v in values)
        body = "\n    ".join([f"like = {next(iter(self.names.values()), 'None')}", *self.lines, f"return ({results})"])
        text = f"def values({arguments}):\n    {body}\n"
        exec(text, self.namespace)
        return Batched(self.namespace["values"], text)

    def _node(self, node: Node) -> str:
        match node:
            case ConstantTensor(shape, numbers):
                return f"torch.tensor({numbers}, dtype=like.dtype, device=like.device).reshape({shape})"
            case Map(shape, expression):
                return self._spread(expression, shape)
            case Reduce(shape, reduction, extent, expression):
                return f"spread({self._reduced(reduction, expression, (*shape, extent))}, {shape}, like)"
            case Reshape(shape, base):
                return (
                    f"{self.names[base]}.flatten({-len(base.shape)}).unflatten(-1, {shape})"
                    if base.shape
                    else (f"{self.names[base]}[{', '.join(['...', *['None'] * len(shape)])}]")
                )
            case Assemble(shape, regions):
                parts = [f"({start}, {part}, {self._code(e, part)})" for start, part, e in regions]
                return f"joined(front, {shape}, [{', '.join(parts)}], like)"
        raise AssertionError(f"{node} is no placeholder")

    def _spread(self, expression: Expression, shape: Shape) -> str:
        code = self._code(expression, shape)
        # A sum of constants is a number, not a tensor.
        is_tensor = next(loads(expression), None) is not None
        is_all = is_tensor and axes(expression) == {a for a, n in enumerate(shape) if n > 1}
        return code if is_all else f"spread({code}, {shape}, like)"

    def _reduced(self, reduction: str, expression: Expression, shape: Shape) -> str:
        last = len(shape) - 1
        match expression:
            case Apply("mul", (Load() as a, Load() as b)) if reduction == "sum" and axes(a) != axes(b):
                used = (axes(a) | axes(b)) - {last}
                letters = ["".join(LETTERS[i] for i in sorted(where)) for where in (axes(a), axes(b), used)]
                equation = "...{},...{}->...{}".format(*letters)
                code = f"torch.einsum({equation!r}, {self._bare(a, shape)}, {self._bare(b, shape)})"
                return code if len(used) == last else f"{code}[{self._places(used, last)}]"
        return f"{reduction}_of({self._code(expression, shape)}, -1)"

    def _code(self, expression: Expression, shape: Shape) -> str:
        match expression:
            case Constant(value):
                return repr(value) if abs(value) < float("inf") else f"float('{value}')"
            case Load():
                bare, used = self._bare(expression, shape), axes(expression)
                return bare if len(used) == len(shape) else f"{bare}[{self._places(used, len(shape))}]"
            case Apply(function, arguments) if function in ARITHMETIC:
                first, second = (self._code(a, shape) for a in arguments)
                return f"({first} {ARITHMETIC[function]} {second})"
            case Apply(function, arguments):
                parts = (self._code(a, shape) for a in arguments)
                # A number by itself is no tensor.
                parts = (
                    f"number({c}, like)" if isinstance(a, Constant) else c
                    for a, c in zip(arguments, parts, strict=True)
                )
                return f"{function}_({', '.join(parts)})"

    def _places(self, used: set[int] | frozenset[int], rank: int) -> str:
        return ", ".join(["...", *(":" if a in used else "None" for a in range(rank))])

    def _bare(self, load: Load, shape: Shape) -> str:
        """The loaded tensor, with only the axes that it depends on, in their order."""
        sizes = load.node.shape
        code, index = self.names[load.node], load.index
        places = [_place(i, n, shape) for i, n in zip(index, sizes, strict=True)]
        code = f"{code}[{', '.join(['...', *places])}]" if {*places} - {":"} else code
        left = [i for i in index if i.axis >= 0]
        flipped = [n - len(left) for n, i in enumerate(left) if i.step < 0]
        code = f"{code}.flip({flipped})" if flipped else code
        order = [i.axis for i in left]
        while len({*order}) < len(order):
            axis = next(a for a in order if order.count(a) > 1)
            first, second = (n for n, a in enumerate(order) if a == axis)
            code = f"{code}.diagonal(dim1={first - len(order)}, dim2={second - len(order)})"
            order = [a for a in order if a != axis] + [axis]
        if order != sorted(order):
            to = [sorted(order).index(a) - len(order) for a in order]
            code = f"{code}.movedim({[n - len(order) for n in range(len(order))]}, {to})"
        return code


def _place(index: Index, size: int, shape: Shape) -> str:
    """The slice of an axis that a load reads. A load in reverse order reads the same indices in ascending order."""
    axis, step, start = index
    if axis < 0:
        return str(start)
    ends = start, start + step * (shape[axis] - 1)
    if abs(step) == 1 and shape[axis] == size:
        return ":"
    return f"{min(ends)}:{max(ends) + 1}:{abs(step)}"


def spread(x: Any, shape: Shape, like: Tensor) -> Tensor:
    """A tensor or a number, expanded to all of its last axes."""
    if not isinstance(x, Tensor):
        return torch.full(shape, x, dtype=like.dtype, device=like.device)
    return x.expand((*x.shape[: x.ndim - len(shape)], *shape))


def number(value: float, like: Tensor) -> Tensor:
    """A number as a tensor."""
    return torch.full((), value, dtype=like.dtype, device=like.device)


def joined(front: Shape, shape: Shape, regions: Sequence[tuple[Shape, Shape, Any]], like: Tensor) -> Tensor:
    """A tensor from its regions."""
    whole = torch.zeros(*front, *shape, dtype=like.dtype, device=like.device)
    for start, part, x in regions:
        box: Any = (..., *(slice(a, a + n) for a, n in zip(start, part, strict=True)))
        whole[box] = x
    return whole
