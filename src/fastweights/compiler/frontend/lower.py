"""Lowers a traced graph to tensor expressions: views become index maps, and products of matrices become sums."""

import inspect
import operator
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from typing import Any

import torch
from torch import Tensor

from fastweights.compiler.errors import Unsupported
from fastweights.compiler.frontend.trace import Trace
from fastweights.compiler.ir.builder import ExpressionBuilder
from fastweights.compiler.ir.nodes import Apply, Constant, ConstantTensor, Input, Load, Value, identity
from fastweights.compiler.ir.step import Forward, Step
from fastweights.compiler.ir.step_map import StepMap
from fastweights.compiler.operations import INSTEAD, OPERATIONS, OTHERS, PLACES

LARGEST_CONSTANT = 1 << 16
"""Largest number of elements of a constant tensor, since they are part of the kernel's source."""


def lower(trace: Trace) -> Step:
    """The step of a trace with its gradient. Raises `Unsupported` for an operation outside the subset."""
    lowering = Lowering(trace)
    results = lowering.run()
    placeholders = iter(lowering.placeholders)
    state, inputs, params, d_state = (
        {name: next(placeholders) for name in names} for names in (trace.state, trace.inputs, trace.params, trace.state)
    )
    rest = iter(results)
    new_state = {name: next(rest) for name in trace.state}
    y = next(rest)
    kinds = {"state": trace.state, "inputs": trace.inputs, "params": trace.params}
    gradients = {kind: {name: next(rest) for name in names} for kind, names in kinds.items()}
    return Step(state, inputs, params, d_state, next(placeholders), new_state, y, gradients)


def lower_forward(trace: Trace) -> Forward:
    """The step of a trace without its gradient. Raises `Unsupported` for an operation outside the subset."""
    lowering = Lowering(trace)
    *new_state, y = lowering.run()
    placeholders = iter(lowering.placeholders)
    kinds = (trace.state, trace.inputs, trace.params, trace.state)
    state, inputs, params, after = ({name: next(placeholders) for name in names} for names in kinds)
    lines = tuple(trace.lines.get(node.name, "") for node in trace.results)
    by_field = dict(zip(trace.state, new_state, strict=True))
    return Forward(state, inputs, params, after, by_field, y, lines, trace.detached)


def lower_map(graph: torch.fx.GraphModule, counts: tuple[int, int, int], parts: Sequence[int]) -> StepMap:
    """The function of a graph of `trace_map`, with numbers of inputs, params and marks, and of parts per output.

    Raises:
        Unsupported: An operation is outside the subset.
    """
    lowering = Lowering(Trace(graph, (), (), (), {}))
    results, placeholders = iter(lowering.run()), iter(lowering.placeholders)
    inputs, params, marks = (tuple(islice(placeholders, n)) for n in counts)
    outputs = tuple(tuple(islice(results, n)) for n in parts)
    d_outputs = tuple(tuple(islice(placeholders, n)) for n in parts)
    d_inputs = tuple(islice(results, counts[0]))
    return StepMap(inputs, params, marks, outputs, d_outputs, d_inputs, tuple(results))


class Lowering:
    """Lowers the nodes of a graph in order. `values` has their results: a `Value`, a constant tensor or a tuple."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.builder = ExpressionBuilder()
        self.values: dict[torch.fx.Node, Any] = {}
        self.placeholders: list[Input] = []

    def run(self) -> list[Value]:
        """Lowers the graph, and returns its results."""
        for node in self.trace.graph.graph.nodes:
            if node.op == "output":
                return [self._tensor(self._value(x)) for x in node.args[0]]
            self.builder.line = self.trace.lines.get(node.name, "")
            self.values[node] = self._node(node)
        raise AssertionError("a graph ends with its output")

    def _node(self, node: torch.fx.Node) -> Any:
        if node.op == "placeholder":
            shape = tuple(node.meta["val"].shape)
            self.placeholders.append(Input(shape))
            return Value(shape, Load(self.placeholders[-1], identity(shape)))
        if node.op == "get_attr":
            return getattr(self.trace.graph, str(node.target))
        arguments = [self._value(a) for a in node.args]
        keywords = {name: self._value(a) for name, a in node.kwargs.items()}
        if not any(_holds_value(a) for a in (*arguments, *keywords.values())):
            made = node.target(*arguments, **keywords)  # type: ignore[operator]
            # Uninitialised tensors become zeros, so that equal steps have equal code.
            return made.zero_() if str(node.target).startswith("aten.empty") else made
        return self._call(node, arguments, keywords)

    def _value(self, argument: Any) -> Any:
        if isinstance(argument, torch.fx.Node):
            return self.values[argument]
        if isinstance(argument, list | tuple):
            return type(argument)(self._value(a) for a in argument)
        return argument

    def _call(self, node: torch.fx.Node, arguments: list[Any], keywords: dict[str, Any]) -> Any:
        if node.target is operator.getitem:
            return arguments[0][arguments[1]]
        if node.target._schema.is_mutable and node.args[0].op != "placeholder":  # type: ignore[union-attr]
            # Other reads of that tensor would miss the change.
            operation = f"a tensor that {node.target} writes into"
            raise Unsupported(operation, self.trace.lines.get(node.name, ""), "a new tensor")
        name = str(node.target).removeprefix("aten.").removeprefix("prims.").partition(".")[0]
        rule = OPERATIONS.get(name)
        is_of_bits = name.startswith("bitwise_") and node.meta["val"].dtype != torch.bool
        is_of_memory = name.startswith("as_strided") and not _is_whole(node.all_input_nodes[0].meta["val"])
        placeholders = [self.builder, *[self._made(a, keeps_places=name in PLACES) for a in arguments]]
        if rule is None or is_of_bits or is_of_memory or not _takes(rule, placeholders, keywords):
            line = self.trace.lines.get(node.name, "") or f"the gradient of {self._origin(node)}"
            raise Unsupported(f"the operation {node.target} is not one that compiles", line, INSTEAD.get(name, OTHERS))
        return rule(*placeholders, **keywords)

    def _origin(self, node: torch.fx.Node) -> str:
        """The line of the nearest operand that the cell itself computed."""
        queue = list(node.all_input_nodes)
        while queue:
            near = queue.pop(0)
            if self.trace.lines.get(near.name):
                return self.trace.lines[near.name]
            queue.extend(near.all_input_nodes)
        return "the step"

    def _made(self, argument: Any, keeps_places: bool) -> Any:
        """An argument for a rule. Rules that work with indices receive constant indices and masks as tensors."""
        if isinstance(argument, Tensor):
            return argument if keeps_places and not argument.is_floating_point() else self._tensor(argument)
        if isinstance(argument, list | tuple) and any(isinstance(a, Tensor | Value) for a in argument):
            return [self._made(a, keeps_places) for a in argument]
        return argument

    def _tensor(self, value: Any) -> Value:
        """The value of a constant tensor: a `Constant` if all its elements are equal, else a `ConstantTensor`."""
        if isinstance(value, Value):
            return value
        assert isinstance(value, Tensor), value
        numbers = value.double().flatten().tolist()
        shape = tuple(value.shape)
        if len({*map(repr, numbers)}) == 1:
            constant = Constant(numbers[0])
            return Value(shape, Apply("ne", (constant, Constant(0.0))) if value.dtype == torch.bool else constant)
        if len(numbers) > LARGEST_CONSTANT:
            raise Unsupported(
                f"a constant tensor of {len(numbers)} numbers", self.builder.line, "a field of the params"
            )
        table = Load(ConstantTensor(shape, tuple(numbers)), identity(shape))
        return Value(shape, Apply("ne", (table, Constant(0.0))) if value.dtype == torch.bool else table)


def _is_whole(x: Tensor) -> bool:
    """Whether a tensor is contiguous and shares its memory with no other tensor."""
    return x.is_contiguous() and x.untyped_storage().nbytes() == x.numel() * x.itemsize


def _takes(rule: Callable[..., Any], arguments: Sequence[Any], keywords: Mapping[str, Any]) -> bool:
    """Whether a rule has a parameter for every argument of an operation."""
    try:
        inspect.signature(rule).bind(*arguments, **keywords)
    except TypeError:
        return False
    return True


def _holds_value(argument: Any) -> bool:
    if isinstance(argument, list | tuple) and not isinstance(argument, Value):
        return any(_holds_value(a) for a in argument)
    return isinstance(argument, Value)
