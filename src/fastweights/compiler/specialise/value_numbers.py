"""ValueNumbers for the tensors that a step meets, and what is noted of everything else that it hands to a function."""

from collections.abc import Callable, Hashable, Iterable
from typing import Any

import numpy
import torch
from torch import Tensor

ATOMS = (torch.dtype, torch.device, torch.layout, torch.memory_format, type(...), type(None))


class ValueNumbers:
    """Arguments and results by number; `meet` says what is noted of a tensor that is neither, `unknown` of an object
    that is no plain value.

    Notes are equal only if they mean the same: 1 is not noted as 1.0 or True, nor 0.0 as -0.0.
    """

    def __init__(
        self, arguments: Iterable[Tensor], meet: Callable[[Tensor], Hashable], unknown: Callable[[Any], Hashable]
    ) -> None:
        # All are kept, so that no address is used twice.
        self.kept: list[Tensor] = []
        self.of: dict[int, Hashable] = {}
        self.count = 0
        self.meet, self.unknown = meet, unknown
        self.made(list(arguments))

    def made(self, result: Any) -> None:
        """Numbers what a function returned, but for what it was given."""
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
            self.kept.append(x)

    def note(self, value: Any) -> Hashable:
        """What is noted of an argument of a function."""
        if isinstance(value, Tensor):
            name = self.of.get(id(value))
            return self.meet(value) if name is None else (Tensor, name)
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
    """Kind and numbers of a tensor."""
    numbers = (x.float() if x.dtype == torch.bfloat16 else x).numpy(force=True)
    return (x.dtype, tuple(x.shape), numbers.tobytes())
