"""Whether a cell compiles, found out once for a cell, its sizes and a dtype."""

import torch

from fastweights.cell import Cell
from fastweights.compiler import build
from fastweights.compiler.kernel import kernel, source
from fastweights.compiler.unsupported import Unbuilt, Unsupported

Sizes = tuple[tuple[str, int], ...]

_ANSWERS: dict[tuple[str, Sizes, torch.dtype], str] = {}


def why_not(key: str, sizes: Sizes, dtype: torch.dtype) -> str:
    """Why a cell does not compile on this machine; empty if it does, and then its kernel is built."""
    if (key, sizes, dtype) not in _ANSWERS:
        _ANSWERS[key, sizes, dtype] = _complaint(lambda cell: kernel(cell, dict(sizes), dtype), key)
    return _ANSWERS[key, sizes, dtype]


def why_never(key: str) -> str:
    """The same for any size, without building: what `torch.compile` asks while it traces, when sizes are symbols."""
    if not build.compiler():
        return f"there is no C++ compiler. {build.REMEDY}"
    return _complaint(lambda cell: source(cell, cell.example_sizes, torch.float32), key)


# As by torch.compiler.assume_constant_result, whose import would take seconds: a trace calls it and keeps the answer.
why_never._dynamo_marked_constant = True  # type: ignore[attr-defined]


def _complaint(attempt: object, key: str) -> str:
    try:
        attempt(Cell.of_key(key))  # type: ignore[operator]
    except (Unsupported, Unbuilt) as error:
        return str(error)
    return ""
