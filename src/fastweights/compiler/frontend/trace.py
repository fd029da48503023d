"""Traces the step of a cell and its gradient as one graph of core ATen operations."""

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import chain
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from fastweights.cell import Cell, examples
from fastweights.compiler.errors import Unsupported
from fastweights.compiler.frontend.overrides import PLAIN, Replaced
from fastweights.compiler.frontend.products import PRODUCTS
from fastweights.core.source_location import FAULTS, is_fault, is_of_torch, line_of, line_of_error, reason_of

MORE = (
    *("native_layer_norm", "native_layer_norm_backward", "native_group_norm", "native_batch_norm"),
    *("linalg_vector_norm", "dist"),
    *("elu", "softplus", "gelu", "leaky_relu", "hardtanh", "roll", "trace"),
    *("baddbmm", "addbmm", "addmv", "addr", "_trilinear"),
)
"""Operations outside the core ATen decompositions that PyTorch can decompose."""
WITH_LOWERING_RULE = ("select_backward", "slice_backward", "select_scatter", "slice_scatter", "var", "var_mean")
"""Operations that are not decomposed because they have a lowering rule."""
WHOLE = (
    *("linalg_vector_norm", "std", "std_mean", "softplus", "mish", "elu", "celu"),
    *("hardtanh", "hardsigmoid", "hardswish", "sinc", "xlogy"),
)
"""Operations whose gradient differs from that of their decomposition, at a kink or by overflow. A graph without a
gradient keeps them whole, since autograd differentiates the result."""
DETACHING = {torch.detach, Tensor.detach, Tensor.detach_, Tensor.data.__get__, Tensor.requires_grad_}  # type: ignore[attr-defined]
"""Functions that detach a tensor from the gradient."""


@dataclass(frozen=True)
class Trace:
    """A traced step as a graph.

    The inputs of the graph are the state, the inputs, the params, and the gradients of the new state and of y. Its
    outputs are the new state, y, and the gradients of the state, the inputs and the params. `lines` has the line of the
    cell for every node, and `detached` the first line that detaches a tensor from the gradient, if any.
    """

    graph: torch.fx.GraphModule
    state: tuple[str, ...]
    inputs: tuple[str, ...]
    params: tuple[str, ...]
    lines: Mapping[str, str]
    detached: str = ""

    @property
    def results(self) -> tuple[torch.fx.Node, ...]:
        """The output nodes of the graph."""
        results: tuple[torch.fx.Node, ...] = next(iter(reversed(self.graph.graph.nodes))).args[0]
        return results


def trace(cell: Cell, sizes: Mapping[str, int], dtype: torch.dtype) -> Trace:
    """Traces one time step of one head with its vector-Jacobian product, in the modes of the current thread.

    Raises:
        Unsupported: The step cannot be a graph, for example because it branches on a value.
    """
    arguments = examples(cell, sizes, dtype)
    gradients = [*map(torch.clone, arguments[0]), torch.full(cell.output.shape(sizes), 0.5, dtype=dtype)]
    return _traced(cell, _joint, arguments, gradients)


def trace_forward(cell: Cell, sizes: Mapping[str, int], dtype: torch.dtype) -> Trace:
    """Traces one time step of one head without its gradient.

    The last inputs of the graph are the new states: an expression that reads a new state reads such an input instead.

    Raises:
        Unsupported: The step cannot be a graph.
    """
    arguments = examples(cell, sizes, dtype)
    traced = _traced(cell, _differentiable, arguments, [], WHOLE)
    _take_new_states(traced.graph.graph, len(arguments[0]))
    return traced


def trace_step(cell: Cell, sizes: Mapping[str, int], dtype: torch.dtype) -> torch.fx.GraphModule:
    """Traces one time step of one head as a function from its tensors to the new state and y.

    Raises:
        Unsupported: The step cannot be a graph.
    """
    return _traced(cell, _flat, examples(cell, sizes, dtype), []).graph


def trace_map(
    function: Callable[..., Sequence[Tensor]], tensors: Sequence[Tensor], marks: Sequence[Tensor]
) -> torch.fx.GraphModule:
    """Traces a function of the tensors of one time step, with its vector-Jacobian product.

    The inputs of the graph are the tensors, the marks, which have no gradient, and the gradients of the results. Its
    outputs are the results, and the gradients of the tensors.
    """
    from torch.fx.experimental.proxy_tensor import make_fx

    count, total = len(tensors), len(tensors) + len(marks)
    gradients = [torch.full_like(x, 0.5) for x in function(*tensors, *marks)]

    def joint(*arguments: Tensor) -> tuple[Tensor, ...]:
        with Replaced(PRODUCTS), Replaced(PLAIN):
            results, back = torch.func.vjp(  # type: ignore[misc]
                lambda *x: tuple(function(*x, *arguments[count:total])), *arguments[:count]
            )
            return (*results, *back(arguments[total:]))

    table = decompositions(())
    graph = make_fx(torch.func.functionalize(joint), decomposition_table=table)(*tensors, *marks, *gradients)
    graph.graph.eliminate_dead_code()
    return graph


def _traced(
    cell: Cell,
    function_of: Callable[..., Any],
    arguments: list[Any],
    gradients: list[Tensor],
    whole: tuple[str, ...] = (),
) -> Trace:
    from torch.fx.experimental.proxy_tensor import make_fx

    lines = Lines()
    function = torch.func.functionalize(function_of(cell, [len(a) for a in arguments], lines))
    try:
        with torch.random.fork_rng(devices=[]):
            graph = make_fx(function, decomposition_table=decompositions(whole))(
                *chain.from_iterable(arguments), *gradients
            )
    except (Unsupported, *FAULTS) as error:
        if not (isinstance(error, Unsupported) or is_fault(error)):
            raise
        raise _untraceable(cell, error) from error
    graph.graph.eliminate_dead_code()
    names = [record._fields for record in arguments]
    return Trace(graph, names[0], names[1], names[2] if len(names) > 2 else (), lines.of_nodes, lines.detached)


def _take_new_states(graph: torch.fx.Graph, count: int) -> None:
    """Adds an input to the graph for every new state, and lets the other nodes read it."""
    output = next(iter(reversed(graph.nodes)))
    results, placeholders = list(output.args[0]), [node for node in graph.nodes if node.op == "placeholder"]
    with graph.inserting_before(placeholders[-1].next):
        after = [graph.placeholder(f"after_{n}") for n in range(count)]
    for new, old, instead in zip(results[:count], placeholders, after, strict=False):
        instead.meta["val"] = old.meta["val"]
        if new.op != "placeholder":
            behind = _behind(new)
            new.replace_all_uses_with(instead, lambda user, behind=behind: user is not output and user not in behind)
    results[count] = after[results.index(results[count])] if results[count] in results[:count] else results[count]
    output.args = (tuple(results),)
    graph.eliminate_dead_code()


def _behind(node: torch.fx.Node) -> set[torch.fx.Node]:
    """All nodes that a node is computed from."""
    visited, queue = set[torch.fx.Node](), [node]
    while queue:
        new = [n for n in queue.pop().all_input_nodes if n not in visited]
        visited.update(new)
        queue.extend(new)
    return visited


def _step(cell: Cell, arguments: list[list[Any]]) -> tuple[tuple[Tensor, ...], Tensor]:
    kinds = [cell.State, cell.Inputs] + ([cell.Params] if cell.Params is not None else [])
    state, y = cell.step(*(kind(*a) for kind, a in zip(kinds, arguments, strict=True)))
    return tuple(state), y


def _flat(cell: Cell, counts: list[int], lines: "Lines") -> Callable[..., Any]:
    def flat(*tensors: Tensor) -> tuple[Tensor, ...]:
        rest = iter(tensors)
        # In this order: the replacement of attention contains products.
        with lines, Replaced(PRODUCTS), Replaced(PLAIN):
            state, y = _step(cell, [[next(rest) for _ in range(n)] for n in counts])
        return (*state, y)

    return flat


def _differentiable(cell: Cell, counts: list[int], lines: "Lines") -> Callable[..., Any]:
    flat = _flat(cell, counts, lines)

    def differentiable(*tensors: Tensor) -> tuple[Tensor, ...]:
        with torch.enable_grad():
            # Under a transform, so that a tensor that PyTorch writes into is traced as a new tensor.
            results: tuple[Tensor, ...] = torch.func.vjp(flat, *tensors)[0]
        return results

    return differentiable


def _joint(cell: Cell, counts: list[int], lines: "Lines") -> Callable[..., Any]:
    flat, total = _flat(cell, counts, lines), sum(counts)

    def joint(*tensors: Tensor) -> Any:
        results, back = torch.func.vjp(flat, *tensors[:total])  # type: ignore[misc]
        return (*results, *back(tensors[total:]))

    return joint


@cache
def decompositions(whole: tuple[str, ...]) -> dict[Any, Any]:
    """The decompositions into operations that have a lowering rule, except for the operations `whole`."""
    from torch._decomp import core_aten_decompositions, get_decompositions

    aten = torch.ops.aten
    table = dict(core_aten_decompositions())
    table.update(get_decompositions([getattr(aten, name) for name in MORE]))
    for name in (*WITH_LOWERING_RULE, *whole):
        packet = getattr(aten, name)
        for overload in packet.overloads():
            table.pop(getattr(packet, overload), None)
    return table


class Lines(TorchFunctionMode):
    """Records the line of the cell that creates each node of the graph."""

    def __init__(self) -> None:
        super().__init__()
        self.of_nodes: dict[str, str] = {}
        self.detached = ""
        """The first line that detaches a tensor from the gradient."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        from torch.fx.experimental.proxy_tensor import get_proxy_mode

        mode, frame = get_proxy_mode(), sys._getframe(1)
        is_off = not torch.is_grad_enabled() and any(isinstance(a, Tensor) for a in args)
        if not self.detached and (is_off or (func in DETACHING and not is_of_torch(frame))):
            self.detached = line_of(frame)
        result = func(*args, **(kwargs or {}))
        if mode is not None:
            line = line_of(frame)
            for node in reversed(mode.tracer.graph.nodes):
                if node.name in self.of_nodes:
                    break
                self.of_nodes[node.name] = line
        return result


def _untraceable(cell: Cell, error: Exception) -> Unsupported:
    """The error for a step that cannot be traced, with its reason and the line of the cell."""
    description = f"{cell.name} cannot be traced ({reason_of(error)})"
    return Unsupported(description, line_of_error(error), "torch.where in place of a branch on a value")
