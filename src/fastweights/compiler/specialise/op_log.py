"""What a step does, written down while it runs once for one head: what its kernel is known by.

Whatever Python a step is made of (closures, modules, partials, properties), it comes down to PyTorch's operations on
its arguments, on numbers, and on tensors that it has from elsewhere. Steps for which these are the same are the same
step: nothing needs to be known of the Python.
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
"""What a step may ask of a tensor without learning its numbers."""
BRANCH = "torch.where in place of a branch on a value"
INPUT = "a field of the params"
SURROGATE = "plain functions, with soft + (hard - soft).detach() where the gradient is to be another's,"


class OpLog(NamedTuple):
    """A step, written down.

    `text` is what it does; `captured` are the floating tensors that it has from elsewhere, whose numbers do not count;
    `calls` is the key of its calls, None where they do not tell everything.
    """

    text: str
    captured: list[Tensor]
    calls: Hashable | None


def record_ops(cell: Cell, sizes: dict[str, int], dtype: torch.dtype) -> OpLog:
    """Runs the step, with different numbers, until it is sure that nothing is missing.

    Raises:
        Unsupported: it does not do the same whenever it is called, or what it does cannot be told.
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
    cell: Cell, records: Sequence[Any], sizes: dict[str, int], given: int = 0
) -> tuple["CheckedCallLog", "Operations"]:
    """The last `given` tensors count as from elsewhere: they stand for what a cell captured before it was lifted."""
    tensors = [x for record in records for x in record]
    calls = CheckedCallLog(tensors[: len(tensors) - given])
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
    """That params in the place of captured tensors come wherever those did."""
    lifted = lift(cell, before.captured, cell.key)
    records = examples(lifted, sizes, dtype)
    for x, captured in zip(reversed(records[-1]), reversed(before.captured), strict=False):
        x.requires_grad_(captured.requires_grad)  # without a gradient to come, PyTorch leaves some operations out
    _, after = _record(lifted, records, sizes, len(before.captured))
    if after.noted != before.operations.noted:
        what = f"{cell.name} hands a tensor from elsewhere to where it cannot be followed"
        raise Unsupported(what, "", INPUT)


def _has_own_gradient(cell: Cell, records: Sequence[Any], operations: "Operations") -> bool:
    """Whether a `torch.autograd.Function` says what the gradient is: it is no operation, and runs without gradients."""
    if operations.is_silent and not operations.calls.switches:
        return True
    leaves = [type(record)(*(x.requires_grad_() for x in record)) for record in records]
    state, y = cell.step(*leaves)
    queue, seen = [x.grad_fn for x in (*state, y)], set[Any]()
    while queue:
        node = queue.pop()
        if isinstance(node, torch.autograd.function.BackwardCFunction):
            return True
        if node is not None and node not in seen:
            seen.add(node)
            queue.extend(near for near, _ in node.next_functions)
    return False


class CheckedCallLog(CallLog):
    """A call log that refuses calls which read a value from a tensor: Python could do anything with it."""

    def __init__(self, arguments: Sequence[Tensor]) -> None:
        super().__init__(arguments)
        self.operations = Operations(arguments, self)
        self.switches = False
        self.learns = False
        """Whether a function of PyTorch runs that was called with gradients: it may do parts without."""

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

    def meet(self, x: Tensor) -> Hashable:
        if not self.operations.has_made(x):
            noted = super().meet(x)
            self.operations.variable.update(map(id, self.captured[-1:]))
            return noted
        # A result after all, of what is no call: of a transform of torch.func, say.
        self.is_clear = False
        self.names.made(x)
        return None


def _name(func: Any) -> str:
    """What a function is called; a property by its own name."""
    name = getattr(func, "__name__", "")
    return getattr(getattr(func, "__self__", None), "__name__", name) if name == "__get__" else name


def _is_of_tensors(result: Any) -> bool:
    if isinstance(result, tuple | list):
        return all(map(_is_of_tensors, result))
    return result is None or isinstance(result, Tensor)


class Operations(TorchDispatchMode):
    """What reaches the kernels of PyTorch while this is on, gradients that a step itself computes among it."""

    def __init__(self, arguments: Sequence[Tensor], calls: CheckedCallLog) -> None:
        super().__init__()
        self.names = ValueNumbers(arguments, self._meet, self._unknown)
        self.noted: list[Hashable] = []
        self.is_silent = False
        self.calls = calls
        self.dtype = arguments[0].dtype
        self.variable = {id(x) for x in arguments}
        self.constant: set[int] = set()
        self.storages = {x.untyped_storage()._cdata for x in arguments}

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        # To be left alone by torch._dynamo, PyTorch would import it, for a second or more.
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
        """Notes what the step returned."""
        self.noted.append(self.names.note(result))

    def is_variable(self, x: Tensor) -> bool:
        """Whether a tensor depends on the arguments or on what the step captured, as far as one can tell."""
        return id(x) in self.variable or torch._C._functorch.is_functorch_wrapped_tensor(x)

    def has_made(self, x: Tensor) -> bool:
        """Whether a tensor is the result of an operation."""
        return id(x) in self.names.of and id(x) not in self.constant

    def _before(self, func: Any, args: Any, kwargs: Any) -> list[Hashable]:
        """Notes an operation, unless it is one that no kernel may do."""
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
        """Before it happens: a module's buffers must not be changed by who only looks."""
        written = [
            n for n, a in enumerate(func._schema.arguments) if a.alias_info is not None and a.alias_info.is_write
        ]
        given = dict(zip((a.name for a in func._schema.arguments), args, strict=False)) | kwargs
        for x in _tensors([given.get(func._schema.arguments[n].name) for n in written]):
            if x.untyped_storage()._cdata in self.storages:
                what = "a tensor changed that the step does not own"
                raise Unsupported(what, line_of(sys._getframe(3)), "a new tensor, kept in the state,")

    def _meet(self, x: Tensor) -> Hashable:
        """A tensor that no operation made: captured, or made of plain values by a call that does without."""
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
