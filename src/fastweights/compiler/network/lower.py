"""Lowers a traced module to tensor expressions and operations that are no expressions.

Matrix products with a weight, embeddings and steps of cells become operations of their own. All other operations of the
graph become tensor expressions, by the rules that cells use. `group.py` then makes a program of both.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from fastweights.cell import Cell
from fastweights.compiler.errors import Unsupported
from fastweights.compiler.frontend.lower import Lowering
from fastweights.compiler.frontend.trace import Trace
from fastweights.compiler.ir.network import BufferRole, ElementType, NetworkBuffer
from fastweights.compiler.ir.nodes import Apply, Constant, Input, Load, Node, Shape, Value, whole
from fastweights.compiler.network.trace import NetworkTrace
from fastweights.compiler.network.view import base_of, strides_of
from fastweights.compiler.network.windows import convolution, maximum_pooling
from fastweights.compiler.op import sizes_of
from fastweights.compiler.operations import OPERATIONS
from fastweights.compiler.operations.value import as_value
from fastweights.compiler.targets.cell_spec import CellSpec

TYPES: Mapping[torch.dtype, ElementType] = {
    **{torch.int64: "int64", torch.bool: "bool", torch.uint8: "uint8"},
    **dict.fromkeys((torch.float32, torch.float64), "real"),
}
IN_SOURCE = 64
"""Largest number of elements of a constant tensor in the source text. Larger ones are weights of the program."""


@dataclass(eq=False)
class Special:
    """An operation that is no tensor expression, before its operands have buffers.

    Args:
        kind: "linear", "gather", "cell" or "convert".
        operands: The values that it reads, by name.
        results: The nodes that it computes.
        spec: The cell of a "cell".
    """

    kind: str
    operands: Mapping[str, list[Value]]
    results: list[Input]
    spec: CellSpec | None = None


@dataclass(eq=False)
class Lowered:
    """A lowered graph.

    Args:
        inputs: The buffer of every input of the graph, by its node.
        specials: The operations that are no expressions, in order.
        results: The results of the graph, and the types of their elements.
        constants: The constant tensors of the program, by the name of their buffer.
        dtype: The dtype of all real buffers.
        windows: Largest number of elements of the windows of a convolution.
    """

    inputs: dict[Node, NetworkBuffer] = field(default_factory=dict)
    specials: list[Special] = field(default_factory=list)
    results: list[tuple[Value, ElementType]] = field(default_factory=list)
    constants: dict[str, Tensor] = field(default_factory=dict)
    dtype: torch.dtype | None = None
    windows: int = 0


def lower(trace: NetworkTrace, states: Sequence[int]) -> Lowered:
    """Lowers a traced call, whose arguments at the positions `states` are the state before the step.

    Raises:
        Unsupported: An operation does not compile. The message names it.
    """
    return NetworkLowering(trace, states).lowered()


class NetworkLowering(Lowering):
    """Lowers the nodes of a graph in order."""

    def __init__(self, trace: NetworkTrace, states: Sequence[int]) -> None:
        super().__init__(Trace(trace.graph, (), (), (), trace.lines))
        self.network, self.out = trace, Lowered()
        self.states = {trace.arguments[n] for n in states}
        self.folded: dict[int, Input] = {}
        self.integers: dict[Node, Input] = {}

    def lowered(self) -> Lowered:
        """Lowers the graph."""
        values = self.run()
        types = [self.type_of(node.meta["val"].dtype, node.name) for node in self.trace.results]
        self.out.results = list(zip(map(as_value, values), types, strict=True))
        return self.out

    def type_of(self, dtype: torch.dtype, name: str) -> ElementType:
        """The type of the elements of an input or a result. All floating dtypes of a program are the same."""
        kind = TYPES.get(dtype)
        if kind == "real":
            self.out.dtype = self.out.dtype or dtype
        if kind is None or (kind == "real" and dtype != self.out.dtype):
            raise Unsupported(f"the tensor {name} of {dtype}", "", f"one of {self.out.dtype or torch.float32}")
        return kind

    def special(self, kind: str, operands: Mapping[str, list[Value]], shapes: Sequence[Shape]) -> list[Value]:
        """Adds an operation that is no expression; returns its results."""
        results = [Input(shape) for shape in shapes]
        self.out.specials.append(Special(kind, operands, results))
        return [whole(node) for node in results]

    def _node(self, node: torch.fx.Node) -> Any:
        if node.op == "placeholder":
            return self._placeholder(node)
        name = str(node.target).removesuffix(".default")
        if name.startswith("aten._assert"):
            return None
        self.builder.line = self.trace.lines.get(node.name, "")
        rule = SPECIAL.get(name)
        result = None if rule is None else rule(self, node)
        return super()._node(node) if result is None else result

    def _placeholder(self, node: torch.fx.Node) -> Value:
        meta, name = node.meta["val"], self.network.weights.get(node.name, node.name)
        kind, shape = self.type_of(meta.dtype, name), tuple(meta.shape)
        role = BufferRole.WEIGHT if node.name in self.network.weights else BufferRole.INPUT
        role = BufferRole.STATE if node.name in self.states else role
        read = Input(shape)
        self.out.inputs[read] = NetworkBuffer(name, shape, kind, role)
        if kind == "real":
            return whole(read)
        (number,) = self.special("convert", {"x": [whole(read)]}, [shape])
        self.integers[self.out.specials[-1].results[0]] = read
        return Value(shape, Apply("ne", (number.expression, Constant(0.0)))) if kind == "bool" else number

    def _tensor(self, value: Any) -> Value:
        """A value. A large constant tensor becomes a weight of the program."""
        is_large = isinstance(value, Tensor) and value.numel() > IN_SOURCE
        if not is_large or len(value.unique()) == 1:
            return super()._tensor(value)
        if id(value) not in self.folded:
            name = f"constant_{len(self.out.constants)}"
            node = self.folded[id(value)] = Input(tuple(value.shape))
            self.out.constants[name] = value
            self.out.inputs[node] = NetworkBuffer(name, node.shape, "real", BufferRole.WEIGHT)
        number = whole(self.folded[id(value)])
        return (
            Value(number.shape, Apply("ne", (number.expression, Constant(0.0))))
            if value.dtype == torch.bool
            else number
        )

    def weight(self, value: Any, shape: Shape) -> Value | None:
        """The value if it is a part of a weight, whose rows or columns are dense."""
        if not isinstance(value, Value) or value.shape != shape or not isinstance(value.expression, Load):
            return None
        buffer = self.out.inputs.get(base_of(value.expression.node))
        is_dense = 1 in strides_of(value) or 1 in shape
        return value if buffer is not None and buffer.role is BufferRole.WEIGHT and is_dense else None

    def number(self, node: Any) -> Value:
        """The value of an argument as numbers."""
        return as_value(self._tensor(self._value(node)))


def _linear(lowering: NetworkLowering, node: Any, bias: Any = None) -> Value | None:
    """x W, where W is a weight."""
    *_, a, b = node.args
    x, shape = lowering.number(a), tuple(b.meta["val"].shape)
    weight = lowering.weight(lowering._value(b), shape)
    if weight is None:
        return None
    operands = {"x": [x], "weight": [weight], "bias": [] if bias is None else [bias]}
    return lowering.special("linear", operands, [(x.shape[0], shape[1])])[0]


def _linear_with_bias(lowering: NetworkLowering, node: Any) -> Value | None:
    """x W + c, where W is a weight."""
    if node.kwargs:
        return None
    columns = node.args[2].meta["val"].shape[1]
    bias = lowering.number(node.args[0])
    is_plain = lowering.weight(bias, (columns,)) is not None
    product = _linear(lowering, node, bias if is_plain else None)
    if product is None or is_plain:
        return product
    added: Value = OPERATIONS["add"](lowering.builder, bias, product)
    return added


def _gather(lowering: NetworkLowering, node: Any) -> Value | None:
    """Rows of an embedding."""
    table, index = lowering.number(node.args[0]), lowering.number(node.args[1])
    if lowering.weight(table, table.shape) is None:
        return None
    if not (isinstance(index.expression, Load) and index.expression.node in lowering.integers):
        return None  # an index that is computed is checked too late: states may have changed
    index = Value(index.shape, Load(lowering.integers[index.expression.node], index.expression.index))
    shape = (*index.shape, table.shape[1])
    return lowering.special("gather", {"table": [table], "index": [index]}, [shape])[0]


def _cell(lowering: NetworkLowering, node: Any) -> tuple[Value, ...]:
    """The time steps of a cell: the arguments are those of the operation `scan`."""
    key, tensors, initial, reset, lengths, _ = node.args
    if lengths is not None:
        raise Unsupported("a scan of sequences of several lengths", "", "sequences of one length")
    cell = Cell.of_key(str(key))
    inputs, states = len(cell.slots["Inputs"]), len(cell.slots["State"])
    values = [lowering.number(x) for x in tensors]
    operands = {
        "inputs": values[:inputs],
        "states": values[inputs : inputs + states],
        "params": values[inputs + states :],
        "initial": [lowering.number(x) for x in initial],
        "reset": [] if reset is None else [lowering.number(reset)],
    }
    spec = CellSpec(cell, sizes_of(cell, [x.meta["val"] for x in tensors]), tensors[0].meta["val"].dtype)
    shapes = [tuple(x.shape) for x in node.meta["val"][:-1]]
    results = lowering.special("cell", operands, shapes)
    lowering.out.specials[-1].spec = spec
    return (*results, Value((0,), Constant(0.0)))


def _running_maximum(lowering: NetworkLowering, node: Any) -> tuple[Value, None] | None:
    """The maximum of the elements so far along a short axis, without its position."""
    x, dim = lowering.number(node.args[0]), node.args[1]
    size = x.shape[dim]
    if size > IN_SOURCE:
        return None
    parts = list(OPERATIONS["split"](lowering.builder, x, 1, dim))
    for n in range(1, size):
        parts[n] = OPERATIONS["maximum"](lowering.builder, parts[n - 1], parts[n])
    return OPERATIONS["cat"](lowering.builder, parts, dim), None


SPECIAL: Mapping[str, Callable[..., Any]] = {
    "aten.mm": _linear,
    "aten.addmm": _linear_with_bias,
    "aten.embedding": _gather,
    "aten.convolution": convolution,
    "aten.cummax": _running_maximum,
    "aten.max_pool2d_with_indices": maximum_pooling,
    "fastweights.scan": _cell,
}
"""The rules of the operations that are no expressions. A rule returns None where the operation is one after all."""
