"""The call log of a step: its calls of torch functions, which show in microseconds whether the step has changed."""

from collections.abc import Hashable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from fastweights.cell import Cell
from fastweights.compiler.specialise.value_numbers import ValueNumbers, content

CAPTURED = "captured"
"""The name of a captured tensor, followed by a number."""


class CallLog(TorchFunctionMode):
    """Records the torch functions that a step calls, and their arguments.

    If `is_clear`, equal keys mean equal steps. A log is not clear if a tensor came from a call that it could not see.
    `captured` are the floating tensors that the step captures, in the order of their use. The values of other captured
    tensors are part of the key.
    """

    def __init__(self, arguments: Iterable[Tensor]) -> None:
        super().__init__()
        self.names = ValueNumbers(arguments, self.record_capture, self._unclear)
        self.captured: list[Tensor] = []
        self.noted: list[Hashable] = []
        self.is_clear = True
        self.with_gradients = torch.is_grad_enabled()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.noted.append((func, *map(self.names.note, args)))
        if kwargs:
            self.noted.append(self.names.note(kwargs))
        if torch.is_grad_enabled() is not self.with_gradients:
            self._unclear()
        result = func(*args, **kwargs) if kwargs else func(*args)
        self.names.made(result)
        return result

    def record_capture(self, x: Tensor) -> Hashable:
        """Records a captured tensor."""
        if torch._C._functorch.is_functorch_wrapped_tensor(x) or x.layout != torch.strided:
            return self._unclear()
        if x.is_floating_point():
            self.captured.append(x)
            self.names.add(x, (CAPTURED, len(self.captured)))
            return (x.dtype, tuple(x.shape))
        self.names.add(x, content(x))
        return self.names.of[id(x)]

    def end(self, result: Any) -> None:
        """Records the result of the step."""
        self.noted.append(self.names.note(result))

    @property
    def key(self) -> Hashable:
        """All records, as a hashable value."""
        return tuple(self.noted)

    def _unclear(self, value: Any = None) -> Hashable:
        self.is_clear = False
        return None


def log_calls(cell: Cell, records: Sequence[Any]) -> CallLog:
    """Runs the step of a cell on records of tensors for one head."""
    calls = CallLog(x for record in records for x in record)
    with calls:
        result = cell.step(*records)
    calls.end(result)
    return calls
