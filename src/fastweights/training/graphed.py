"""Functions of tensors as CUDA graphs: one launch replays all kernels of a call."""

from collections import Counter
from collections.abc import Callable, Hashable
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils._pytree import tree_flatten, tree_leaves, tree_map_only

from fastweights.core.errors import invalid, require

WARM_UP = 3
"""Number of eager calls before a capture, as in the example of PyTorch. They create what later calls keep."""


class CudaGraphs:
    """Runs and captures functions on a side stream of a GPU.

    Source: https://docs.pytorch.org/docs/stable/notes/cuda.html#whole-network-capture

    Args:
        device: A CUDA device.

    Raises:
        InputError: The device is another one.
    """

    def __init__(self, device: torch.device) -> None:
        require(device.type == "cuda", "device", "cuda with cuda_graph", device.type, "Use --no-cuda-graph.")
        self._stream = torch.cuda.Stream(device)

    def run(self, function: Callable[[], Any]) -> Any:
        """Runs a function eagerly; returns its result."""
        self._stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._stream):
            result = function()
        torch.cuda.current_stream().wait_stream(self._stream)
        return result

    def capture(self, function: Callable[[], Any]) -> tuple[Callable[[], None], Any]:
        """Captures a function without executing it; returns the replay, and the tensors that a replay writes."""
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=self._stream):
            result = function()
        return graph.replay, result


class Graph(NamedTuple):
    """A captured call: the tensors that it reads, its replay, and the tensors that a replay writes."""

    inputs: list[Tensor]
    replay: Callable[[], None]
    outputs: Any


class Graphed:
    """A function that becomes a CUDA graph for each structure of its arguments.

    A structure is the tree of the arguments with the shapes and dtypes of its tensors. Its first `WARM_UP` calls are
    eager, and the next call captures the graph. The function must not read values of tensors on the host. A replay does
    not run its Python code, so that side effects must be on tensors. Results are valid until the next call of the same
    structure. Every graph has its own memory.

    Args:
        function: Maps trees of tensors to a tree of tensors.
        graphs: Runs and captures the function.
    """

    def __init__(self, function: Callable[..., Any], graphs: CudaGraphs) -> None:
        self._function, self._graphs = function, graphs
        self._eager_calls = Counter[Hashable]()
        self._captured: dict[Hashable, Graph] = {}

    def __call__(self, *arguments: Any) -> Any:
        """Calls the function, or replays its graph.

        Args:
            *arguments: Trees of tensors.

        Returns:
            The result of the function.

        Raises:
            InputError: The function reads values of the GPU on the host.
        """
        key = _structure(arguments)
        if key not in self._captured:
            if self._eager_calls[key] < WARM_UP:
                self._eager_calls[key] += 1
                # Of copies, as in the capture: kernels are compiled for strides and alignments.
                return self._graphs.run(partial(self._function, *_copy(arguments)))
            self._captured[key] = self._capture(arguments)
        graph = self._captured[key]
        for static, tensor in zip(graph.inputs, _tensors(arguments), strict=True):
            static.copy_(tensor)
        graph.replay()
        return graph.outputs

    def _capture(self, arguments: tuple[Any, ...]) -> Graph:
        static = _copy(arguments)
        try:
            # A copy, since a result may be an argument, which the next call overwrites.
            replay, outputs = self._graphs.capture(lambda: _copy(self._function(*static)))
        except RuntimeError as error:
            # After an error PyTorch ends the capture, which can fail in turn.
            cause = error.__context__ or error
            if isinstance(cause, torch.OutOfMemoryError):
                raise cause from None
            requirement = "false for a model that reads values of the GPU on the host, as .item() does"
            raise invalid("cuda_graph", requirement, f"true: {cause}", "Use --no-cuda-graph.") from error
        return Graph(_tensors(static), replay, outputs)


def _structure(arguments: tuple[Any, ...]) -> Hashable:
    leaves, tree = tree_flatten(arguments)
    return tree, tuple((leaf.shape, leaf.dtype) if isinstance(leaf, Tensor) else leaf for leaf in leaves)


def _tensors(tree: Any) -> list[Tensor]:
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, Tensor)]


def _copy(tree: Any) -> Any:
    return tree_map_only(Tensor, torch.clone, tree)
