"""Traces one call of a module as a graph of core ATen operations, with its weights as named inputs."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils._pytree import TreeSpec

from fastweights.compiler.errors import Unsupported
from fastweights.compiler.frontend.trace import WHOLE, decompositions
from fastweights.core.source_location import reason_of


class NetworkTrace(NamedTuple):
    """A traced call.

    Args:
        graph: The graph. Its inputs are the weights, then the tensors of the arguments.
        weights: The names of the weights in the module, by the name of the graph's input.
        constants: The constant tensors of the trace, by the name of the graph's input.
        arguments: The names of the graph's inputs for the tensors of the arguments, in order.
        results: The structure of the results.
    """

    graph: torch.fx.GraphModule
    weights: Mapping[str, str]
    constants: Mapping[str, Tensor]
    arguments: Sequence[str]
    results: TreeSpec


class _Root(nn.Module):
    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, arguments: Any) -> Any:
        return self.module(*arguments)


def trace(module: nn.Module, arguments: tuple[Any, ...]) -> NetworkTrace:
    """Traces `module(*arguments)` in evaluation mode and without gradients.

    Raises:
        Unsupported: The call cannot be a graph, for example because it branches on a value.
    """
    try:
        with torch.no_grad():
            exported = torch.export.export(_Root(module), (arguments,), strict=False)
            exported = exported.run_decompositions(decompositions(WHOLE))
    except Exception as error:  # torch.export has no common base class of its errors
        what = f"{type(module).__name__} cannot be traced ({reason_of(error)})"
        raise Unsupported(what, "", "torch.where in place of a branch on a value") from error
    signature, prefix = exported.graph_signature, len("module.")
    named = {**signature.inputs_to_parameters, **signature.inputs_to_buffers}
    constants = {name: exported.constants[at] for name, at in signature.inputs_to_lifted_tensor_constants.items()}
    return NetworkTrace(
        exported.graph_module,
        {name: at[prefix:] for name, at in named.items()},
        constants,
        list(signature.user_inputs),
        exported.call_spec.out_spec,
    )
