"""Functions that `torch.compile` calls while it traces, and whose answers it keeps as constants."""

from collections.abc import Callable, Hashable
from itertools import count
from types import SimpleNamespace
from typing import Any, TypeVar

Answer = TypeVar("Answer")


def traced_constant(make: Callable[..., Answer]) -> Callable[..., Answer]:
    """Lets `torch.compile` trace calls of `make` with constant arguments, whatever object it returns.

    A trace runs functions with the mark `_dynamo_marked_constant` instead of tracing them. The decorator
    `torch.compiler.assume_constant_result` sets that mark, but its import takes seconds. The answer of a marked
    function must be a string or a number. So the marked function stores the object in a namespace and returns its name
    there, under which the traced program looks it up.
    """
    namespace, names, numbers = SimpleNamespace(), dict[tuple[Hashable, ...], str](), count()

    def name_of(*arguments: Hashable) -> str:
        name = names.setdefault(arguments, f"answer_{next(numbers)}")
        setattr(namespace, name, make(*arguments))
        return name

    mark: Any = name_of
    mark._dynamo_marked_constant = True

    def look_up(*arguments: Hashable) -> Answer:
        answer: Answer = getattr(namespace, name_of(*arguments))
        return answer

    return look_up
