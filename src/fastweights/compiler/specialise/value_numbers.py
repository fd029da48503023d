"""Value numbers: names for the tensors of a step, and records of the other arguments of its calls."""

from collections.abc import Callable, Hashable, Iterable
from typing import Any

import numpy
import torch
from torch import Tensor

ATOMS = (torch.dtype, torch.device, torch.layout, torch.memory_format, type(...), type(None))


class ValueNumbers:
    """Numbers the arguments and results of a step.

    `record_capture` returns the record of any other tensor, and `unknown` that of an object that is no plain value.
    Records are equal only if they mean the same: 1, 1.0 and True have different records, and so have 0.0 and -0.0.
    """

    def __init__(
        self,
        arguments: Iterable[Tensor],
        record_capture: Callable[[Tensor], Hashable],
        unknown: Callable[[Any], Hashable],
    ) -> None:
        # Keeps all tensors alive, so that no id is used twice.
        self.alive: list[Tensor] = []
        self.of: dict[int, Hashable] = {}
        self.count = 0
        self.record_capture, self.unknown = record_capture, unknown
        self.made(list(arguments))

    def made(self, result: Any) -> None:
        """Numbers the result of a function, except for tensors that already have a name."""
        if isinstance(result, Tensor):
            self.add(result, self.count)
            self.count += 1
        elif isinstance(result, list | tuple):
            for each in result:
                self.made(each)

    def add(self, x: Tensor, name: Hashable) -> None:
        """Gives a tensor a name, if it has none."""
        if id(x) not in self.of:
            self.of[id(x)] = name
            self.alive.append(x)

    def note(self, value: Any) -> Hashable:
        """The record of an argument of a function."""
        if isinstance(value, Tensor):
            name = self.of.get(id(value))
            return self.record_capture(value) if name is None else (Tensor, name)
        if type(value) is int or type(value) is str:
            return value
        if isinstance(value, tuple | list):
            return tuple(map(self.note, value))
        if isinstance(value, float):
            return (float, value.hex())
        return value if isinstance(value, ATOMS) else self._note_rarer(value)

    def _note_rarer(self, value: Any) -> Hashable:
        if isinstance(value, bool | complex):
            return (type(value), repr(value))
        if isinstance(value, slice):
            return (slice, *map(self.note, (value.start, value.stop, value.step)))
        if isinstance(value, dict):
            return (dict, *((key, self.note(each)) for key, each in value.items()))
        if isinstance(value, numpy.ndarray | numpy.generic):
            return (numpy.ndarray, str(value.dtype), value.shape, value.tobytes())
        return self.unknown(value)


def content(x: Tensor) -> Hashable:
    """The dtype, shape and values of a tensor."""
    numbers = (x.float() if x.dtype == torch.bfloat16 else x).numpy(force=True)
    return (x.dtype, tuple(x.shape), numbers.tobytes())
