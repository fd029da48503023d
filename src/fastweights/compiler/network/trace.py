"""Traces one call of a module as a graph of core ATen operations, with its weights as named inputs."""

import copy
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from fastweights.compiler.errors import Unsupported
from fastweights.compiler.frontend.trace import WHOLE, Lines, decompositions
from fastweights.compiler.network.leaves import leaves, rebuilt
from fastweights.core.source_location import FAULTS, is_fault, line_of_error, reason_of


class NetworkTrace(NamedTuple):
    """A traced call.

    Args:
        graph: The graph. Its inputs are the weights, then the tensors of the arguments.
        weights: The name of every weight in the module, by the name of the graph's input.
        arguments: The names of the graph's inputs for the tensors of the arguments, in order.
        lines: The line of the module's code, by the name of a node.
        results: The results of the call, as tensors without memory.
    """

    graph: torch.fx.GraphModule
    weights: Mapping[str, str]
    arguments: Sequence[str]
    lines: Mapping[str, str]
    results: Any


def trace(module: nn.Module, arguments: tuple[Any, ...]) -> NetworkTrace:
    """Traces `module.forward(*arguments)` without gradients, as `torch.export` would.

    Raises:
        Unsupported: The call cannot be a graph, for example because it branches on a value.
    """
    from torch.fx.experimental.proxy_tensor import make_fx

    weights = weights_of(module)
    tensors, _ = leaves(arguments)
    lines, results = Lines(), list[Any]()

    def call(weights: list[Tensor], tensors: list[Tensor]) -> list[Tensor]:
        with lines:
            results.append(_with_weights(module, placeholders, weights).forward(*rebuilt(arguments, iter(tensors))))
        return leaves(results[-1])[0]

    names, placeholders = list(weights), list(weights.values())
    try:
        with torch.no_grad(), _exporting():
            graph = make_fx(call, decompositions(WHOLE), "fake")(placeholders, tensors)
            if _writes(graph):
                graph = make_fx(torch.func.functionalize(graph), decompositions(WHOLE), "fake")(placeholders, tensors)
    except (Unsupported, *FAULTS) as error:
        if isinstance(error, Unsupported) or not is_fault(error):
            raise
        description = f"{type(module).__name__} cannot be traced ({reason_of(error)})"
        raise Unsupported(description, line_of_error(error), "torch.where in place of a branch on a value") from error
    inputs = [node.name for node in graph.graph.nodes if node.op == "placeholder"]
    graph.graph.eliminate_dead_code()
    return NetworkTrace(graph, dict(zip(inputs, names, strict=False)), inputs[len(names) :], lines.of_nodes, results[0])


def weights_of(module: nn.Module) -> dict[str, Tensor]:
    """The parameters and buffers of a module by name. A tensor with several names has the first one."""
    return {**dict(module.named_parameters()), **dict(module.named_buffers())}


def _with_weights(module: nn.Module, old: Sequence[Tensor], new: Sequence[Tensor]) -> nn.Module:
    """A copy of a module with other weights. The module itself may be in use in another thread."""
    return copy.deepcopy(module, {id(x): y for x, y in zip(old, new, strict=True)})


@contextmanager
def _exporting() -> Iterator[None]:
    """Marks that a program is exported: layers then take no path that depends on values or on the machine."""
    before = torch.compiler._is_compiling_flag, torch.compiler._is_exporting_flag
    torch.compiler._is_compiling_flag = torch.compiler._is_exporting_flag = True
    try:
        yield
    finally:
        torch.compiler._is_compiling_flag, torch.compiler._is_exporting_flag = before


def _writes(graph: torch.fx.GraphModule) -> bool:
    """Whether an operation of a graph writes into a tensor."""
    schemas = [getattr(node.target, "_schema", None) for node in graph.graph.nodes]
    return any(schema is not None and schema.is_mutable for schema in schemas)
