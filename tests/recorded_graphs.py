"""A stand-in for CUDA graphs on a CPU: it records the operations of a call and repeats them on the same tensors."""

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only

SYNCHRONISES = {torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape}
aten = torch.ops.aten
INDEXED = {aten.index, aten.index_put, aten.index_put_, aten._index_put_impl_, aten._unsafe_index}
"""Operations for which the host waits only if an index is a mask."""


class Operation(NamedTuple):
    """An operation, views of its arguments, and views of the tensors that it created: their memory stays the same."""

    function: Any
    arguments: tuple[Any, ...]
    options: dict[str, Any]
    created: list[Tensor | None]
    grad_mode: bool

    def repeat(self):
        """Runs the operation again, with its results where they were."""
        with torch.set_grad_enabled(self.grad_mode), torch._C._AutoDispatchBelowAutograd():
            results = tensors(self.function(*self.arguments, **self.options))
        for tensor, result in zip(self.created, results, strict=True):
            if tensor is not None:
                tensor.copy_(result)


class Recording(TorchDispatchMode):
    """Records operations. Like a capture, it refuses operations for which the host waits."""

    def __init__(self):
        super().__init__()
        self.operations, self.created, self.before = [], {}, {}

    def __torch_dispatch__(self, function, types, arguments=(), options=None):
        options = options or {}
        operands = tensors((arguments, options))
        if synchronises(function, arguments):
            raise RuntimeError("CUDA error: operation not permitted when stream is capturing")
        for tensor in written(function, arguments, options):
            self._keep(tensor.untyped_storage())
        views = tree_map_only(Tensor, Tensor.detach, (arguments, options))
        result = function(*arguments, **options)
        known = {storage_of(tensor) for tensor in operands}
        created = [None if storage_of(tensor) in known else tensor.detach() for tensor in tensors(result)]
        self.created |= {storage_of(tensor): tensor for tensor in created if tensor is not None}
        # A view computes nothing.
        writes = function._schema.is_mutable and torch.Tag.inplace_view not in function.tags
        if writes or any(tensor is not None for tensor in created):
            self.operations.append(Operation(function, *views, created, torch.is_grad_enabled()))
        return result

    def _keep(self, storage):
        if storage._cdata not in self.created:
            self.before.setdefault(storage._cdata, (storage, storage.clone()))

    def undo(self):
        """Restores tensors that existed before, since a capture executes nothing, and makes all others NaN."""
        for storage, content in self.before.values():
            storage.copy_(content)
        self.erase()

    @torch.no_grad()
    def erase(self):
        """Makes all tensors of the recording NaN: their memory is undefined until a replay writes it."""
        for tensor in self.created.values():
            if tensor.is_floating_point():
                tensor.fill_(torch.nan)

    @torch.no_grad()
    def replay(self):
        """Repeats the operations, without the Python code that called them."""
        self.erase()
        for operation in self.operations:
            operation.repeat()


class RecordedGraphs:
    """Has the methods of `CudaGraphs`."""

    def __init__(self, device):
        self.device, self.recordings = device, []

    def run(self, function):
        return function()

    def capture(self, function):
        random, recording = torch.get_rng_state(), Recording()
        with recording:
            result = function()
        recording.undo()
        torch.set_rng_state(random)
        self.recordings.append(recording)
        return recording.replay, result


def synchronises(function, arguments):
    """Whether the host waits for values in an operation, or for the copy of a constant."""
    if function.overloadpacket in INDEXED:
        return any(index.dtype in (torch.bool, torch.uint8) for index in tensors(arguments[1]))
    return function is aten.lift_fresh.default or bool(SYNCHRONISES & set(function.tags))


def written(function, arguments, options):
    """The tensors that an operation writes to."""
    schema = function._schema.arguments
    named = {argument.name: value for argument, value in zip(schema, arguments, strict=False)} | options
    return tensors([named.get(a.name) for a in schema if a.alias_info is not None and a.alias_info.is_write])


def tensors(tree):
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, Tensor)]


def storage_of(tensor):
    return tensor.untyped_storage()._cdata
