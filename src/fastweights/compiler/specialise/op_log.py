"""The op log of a step: the operations that PyTorch runs while the step is called once for one head.

Closures, modules, partials and properties all come down to PyTorch's operations on the arguments of the step, on
numbers, and on captured tensors. Steps with equal op logs share a kernel, whatever Python they are made of.
"""

import sys
from collections.abc import Hashable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from fastweights.call.step_check import check_result
from fastweights.cell import Cell, examples
from fastweights.compiler.errors import Unsupported
from fastweights.compiler.frontend.overrides import PLAIN, Replaced
from fastweights.compiler.specialise.call_log import CAPTURED, CallLog
from fastweights.compiler.specialise.lift import lift
from fastweights.compiler.specialise.value_numbers import ValueNumbers, content
from fastweights.core.errors import InputError
from fastweights.core.source_location import FAULTS, is_fault, is_of_torch, line_of, line_of_error, reason_of

FACTS = {
    *("shape", "size", "dim", "ndim", "ndimension", "numel", "nelement", "__len__", "stride", "storage_offset"),
    *("dtype", "device", "layout", "is_floating_point", "is_complex", "is_contiguous", "element_size", "itemsize"),
    *("is_sparse", "is_cuda", "is_cpu", "is_meta", "is_quantized", "is_nested", "get_device", "names", "__hash__"),
    *("result_type", "promote_types", "can_cast", "is_tensor", "_set_grad_enabled"),
}
"""Properties of a tensor that a step may read, since they do not depend on its values."""
BRANCH = "torch.where in place of a branch on a value"
INPUT = "a field of the params"
SURROGATE = "plain functions, with soft + (hard - soft).detach() where the gradient is to be another's,"


class OpLog(NamedTuple):
    """The operations of a step as `text`, and the floating tensors that it captures, whose values are not part of it.

    `calls` is the key of the call log; None if the calls do not determine the operations.
    """

    text: str
    captured: list[Tensor]
    calls: Hashable | None


def record_ops(cell: Cell, sizes: dict[str, int], dtype: torch.dtype) -> OpLog:
    """Records the operations of a step, by several runs with different values.

    Raises:
        Unsupported: the operations differ from run to run, or cannot be recorded.
    """
    calls, operations = _record(cell, examples(cell, sizes, dtype), sizes)
    _, again = _record(cell, examples(cell, sizes, dtype, value=0.25), sizes)
    if operations.noted != again.noted:
        raise Unsupported(f"{cell.name} does something else when it is called again", "", "what changes as an input")
    if _has_own_gradient(cell, examples(cell, sizes, dtype), operations):
        raise Unsupported(f"{cell.name} has a torch.autograd.Function", "", SURROGATE)
    if calls.captured:
        _check_lifted(cell, sizes, dtype, calls)
    noted = [*operations.noted, *((x.dtype, tuple(x.shape)) for x in calls.captured)]
    text = "\n".join(map(repr, [(cell.slots, cell.output, sizes, dtype), *noted]))
    return OpLog(text, calls.captured, calls.key if calls.is_clear else None)


def _record(
    cell: Cell, records: Sequence[Any], sizes: dict[str, int], lifted: int = 0
) -> tuple["CheckedCallLog", "Operations"]:
    """One run of the step. The last `lifted` tensors count as captured: a lifted cell takes them as params."""
    tensors = [x for record in records for x in record]
    calls = CheckedCallLog(tensors[: len(tensors) - lifted])
    try:
        with Replaced(PLAIN), calls, calls.operations:
            result = cell.step(*records)
        calls.end(result)
        calls.operations.end(result)
        check_result(cell, result, sizes, tensors[0].dtype)
    except (InputError, Unsupported):
        raise
    except FAULTS as error:
        if not is_fault(error):
            raise
        raise Unsupported(f"{cell.name} cannot be run ({reason_of(error)})", line_of_error(error), BRANCH) from error
    return calls, calls.operations


def _check_lifted(cell: Cell, sizes: dict[str, int], dtype: torch.dtype, before: "CheckedCallLog") -> None:
    """Raises `Unsupported` unless params in the place of captured tensors lead to the same operations."""
    lifted = lift(cell, before.captured, cell.key)
    records = examples(lifted, sizes, dtype)
    for x, captured in zip(reversed(records[-1]), reversed(before.captured), strict=False):
        x.requires_grad_(captured.requires_grad)  # without gradients, PyTorch skips some operations
    _, after = _record(lifted, records, sizes, len(before.captured))
    if after.noted != before.operations.noted:
        description = f"{cell.name} hands a tensor from elsewhere to where it cannot be followed"
        raise Unsupported(description, "", INPUT)


def _has_own_gradient(cell: Cell, records: Sequence[Any], operations: "Operations") -> bool:
    """Whether a `torch.autograd.Function` defines the gradient. It is no operation, and runs without gradients."""
    if operations.is_silent and not operations.calls.switches:
        return True
    leaves = [type(record)(*(x.requires_grad_() for x in record)) for record in records]
    state, y = cell.step(*leaves)
    queue, visited = [x.grad_fn for x in (*state, y)], set[Any]()
    while queue:
        node = queue.pop()
        if isinstance(node, torch.autograd.function.BackwardCFunction):
            return True
        if node is not None and node not in visited:
            visited.add(node)
            queue.extend(near for near, _ in node.next_functions)
    return False


class CheckedCallLog(CallLog):
    """A call log that refuses calls which read a value from a tensor: Python could do anything with it."""

    def __init__(self, arguments: Sequence[Tensor]) -> None:
        super().__init__(arguments)
        self.operations = Operations(arguments, self)
        self.switches = False
        self.learns = False
        """Whether a PyTorch function is running that was called with gradients. It may run parts without gradients."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name, frame = _name(func), sys._getframe(1)
        self.learns = torch.is_grad_enabled()
        result = super().__torch_function__(func, types, args, kwargs)
        self.learns = False
        self.switches |= name == "_set_grad_enabled"
        is_fact = name in FACTS or (name == "requires_grad" and is_of_torch(frame))
        if not is_fact and not _is_of_tensors(result) and any(map(self.operations.is_variable, _tensors(args))):
            raise Unsupported(f"a value taken out of a tensor by {name}", line_of(frame), BRANCH)
        return result

    def record_capture(self, x: Tensor) -> Hashable:
        if not self.operations.has_made(x):
            noted = super().record_capture(x)
            self.operations.variable.update(map(id, self.captured[-1:]))
            return noted
        # The tensor is a result of an operation without a call, such as a transform of torch.func.
        self.is_clear = False
        self.names.made(x)
        return None


def _name(func: Any) -> str:
    """The name of a function; for a property, that of the property."""
    name = getattr(func, "__name__", "")
    return getattr(getattr(func, "__self__", None), "__name__", name) if name == "__get__" else name


def _is_of_tensors(result: Any) -> bool:
    if isinstance(result, tuple | list):
        return all(map(_is_of_tensors, result))
    return result is None or isinstance(result, Tensor)


class Operations(TorchDispatchMode):
    """Records the operations that reach the kernels of PyTorch, gradients that a step itself computes among them."""

    def __init__(self, arguments: Sequence[Tensor], calls: CheckedCallLog) -> None:
        super().__init__()
        self.names = ValueNumbers(arguments, self._record_capture, self._unknown)
        self.noted: list[Hashable] = []
        self.is_silent = False
        self.calls = calls
        self.dtype = arguments[0].dtype
        self.variable = {id(x) for x in arguments}
        self.constant: set[int] = set()
        self.storages = {x.untyped_storage()._cdata for x in arguments}

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        # If True, PyTorch imports torch._dynamo, which takes a second or more.
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        with torch._C.DisableTorchFunction():
            note = self._before(func, args, kwargs)
            result = func(*args, **kwargs)
            self.names.made(result)
            if any(self.is_variable(x) for x in _tensors((args, kwargs))):
                self._vary(result)
            else:
                note.extend(x.dtype for x in _tensors(result))
        self.noted.append(tuple(note))
        return result

    def end(self, result: Any) -> None:
        """Records the result of the step."""
        self.noted.append(self.names.note(result))

    def is_variable(self, x: Tensor) -> bool:
        """Whether a tensor may depend on the arguments or on captured tensors."""
        return id(x) in self.variable or torch._C._functorch.is_functorch_wrapped_tensor(x)

    def has_made(self, x: Tensor) -> bool:
        """Whether a tensor is the result of an operation."""
        return id(x) in self.names.of and id(x) not in self.constant

    def _before(self, func: Any, args: Any, kwargs: Any) -> list[Hashable]:
        """Records an operation. Raises `Unsupported` for an operation that no kernel can run."""
        if torch.Tag.nondeterministic_seeded in func.tags:
            raise Unsupported(f"random numbers by {func}", line_of(sys._getframe(2)), "noise as one of the inputs")
        constant = func is torch.ops.aten.lift_fresh.default
        note: list[Hashable] = [str(func), *(content(x) if constant else self.names.note(x) for x in args)]
        note.append(self.names.note(kwargs))
        if not torch.is_grad_enabled():
            self.is_silent |= not self.calls.learns
            note.append("without a gradient")
        if func is torch.ops.aten._local_scalar_dense.default and self.is_variable(args[0]):
            raise Unsupported("a value taken out of a tensor", line_of(sys._getframe(2)), BRANCH)
        self._check_written(func, args, kwargs)
        return note

    def _check_written(self, func: Any, args: Any, kwargs: Any) -> None:
        """Raises `Unsupported` before an operation writes into a tensor of the caller, such as a buffer of a module."""
        written = [
            n for n, a in enumerate(func._schema.arguments) if a.alias_info is not None and a.alias_info.is_write
        ]
        arguments_by_name = dict(zip((a.name for a in func._schema.arguments), args, strict=False)) | kwargs
        for x in _tensors([arguments_by_name.get(func._schema.arguments[n].name) for n in written]):
            if x.untyped_storage()._cdata in self.storages:
                description = "a tensor changed that the step does not own"
                raise Unsupported(description, line_of(sys._getframe(3)), "a new tensor, kept in the state,")

    def _record_capture(self, x: Tensor) -> Hashable:
        """The name of a tensor that is no result of an operation: captured, or made of plain values."""
        name = self.calls.names.of.get(id(x))
        self.constant.add(id(x))
        self.storages.add(x.untyped_storage()._cdata)
        if name is None and x.is_floating_point():
            raise Unsupported("a tensor from elsewhere", line_of(sys._getframe(4)), INPUT)
        if not (isinstance(name, tuple) and name[0] == CAPTURED):
            name = content(x)
        self.names.add(x, name)
        return (Tensor, name)

    def _unknown(self, value: Any) -> Hashable:
        raise Unsupported(f"a {type(value).__name__} given to an operation", line_of(sys._getframe(4)), "numbers")

    def _vary(self, result: Any) -> None:
        for x in _tensors(result):
            self.variable.add(id(x))
            if x.is_complex() or (x.is_floating_point() and x.dtype != self.dtype):
                remedy = "pairs of real numbers" if x.is_complex() else f"{self.dtype}"
                raise Unsupported(f"numbers of {x.dtype}", line_of(sys._getframe(2)), remedy)


def _tensors(value: Any) -> Iterator[Tensor]:
    """All tensors in tuples, lists and dictionaries."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, dict):
        yield from _tensors(list(value.values()))
    elif isinstance(value, tuple | list):
        for each in value:
            yield from _tensors(each)
