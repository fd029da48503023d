"""The tensors of nested tuples. `torch.utils._pytree` takes longer for a state than a small network for a step."""

from collections.abc import Callable, Iterator
from typing import Any

from torch import Tensor


def leaves(structure: Any) -> tuple[list[Tensor], list[type]]:
    """The tensors of nested tuples in order, and the types of all parts. None has no tensor."""
    tensors: list[Tensor] = []
    types: list[type] = []
    _collect(structure, tensors, types)
    return tensors, types


def _collect(part: Any, tensors: list[Tensor], types: list[type]) -> None:
    kind = type(part)
    types.append(kind)
    if isinstance(part, Tensor):
        tensors.append(part)
    elif isinstance(part, tuple):
        for inner in part:
            _collect(inner, tensors, types)
    elif part is not None:
        types.append(NotImplemented)  # neither a tensor nor a tuple: no call of a step


def rebuilt(like: Any, tensors: Iterator[Tensor]) -> Any:
    """The structure `like` with other tensors, in order."""
    return builder(like)(tensors)


def builder(like: Any) -> Callable[[Iterator[Tensor]], Any]:
    """The function that makes the structure `like` from its tensors in order, for repeated calls."""
    if isinstance(like, Tensor):
        return next
    if like is None:
        return lambda tensors: None
    parts = [builder(inner) for inner in like]
    make = getattr(type(like), "_make", tuple)
    return lambda tensors: make([part(tensors) for part in parts])
