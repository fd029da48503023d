"""Checks the step of a cell against its annotations: shapes, dtypes, and arguments that stay unchanged.

The step runs once for one head. Equal sizes would hide a transposed product, so the step runs again at sizes that all
differ. A step may be tied to its sizes by a tensor or a number that it closes over: a step that runs at no other sizes
is not checked there.
"""

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import torch
from torch import Tensor

from fastweights.cell import Cell, examples
from fastweights.core.errors import InputError, invalid
from fastweights.core.source_location import FAULTS, is_fault, line_of_error, reason_of
from fastweights.signature import TensorSpec

Sizes = Mapping[str, int]

LARGE = 1 << 22
"""Maximum number of entries of a state for a second run at larger sizes."""


def check_step(cell: Cell, records: Sequence[Any], sizes: Sizes) -> None:
    """Runs the step on records of tensors of one head, which a faulty step may overwrite.

    Raises:
        InputError: the step fails, writes into its arguments, or returns another type, shape or dtype than annotated.
    """
    before = [x._version for record in records for x in record]
    result = _run(cell, records, sizes)
    names = [name for record in records for name in record._fields]
    after = [x._version for record in records for x in record]
    written = [name for name, old, new in zip(names, before, after, strict=True) if old != new]
    remedy = "Make a new tensor instead, as by W = W + ... in place of W += ...."
    if written:
        got = f"one that changes {', '.join(written)}"
        raise invalid("cell", "a step that does not modify its arguments", got, remedy)
    check_result(cell, result, sizes, records[0][0].dtype)
    distinct, doubled = _distinct(sizes), {axis: 2 * size for axis, size in sizes.items()}
    is_small = all(prod(slot.shape(distinct)) <= LARGE for slot in cell.slots["State"].values())
    if distinct != sizes and is_small and _fits(cell, sizes) and _fits(cell, doubled):
        _check_with_sizes(cell, distinct, "Letters that must be equal should be one letter.")


def check_result(cell: Cell, result: Any, sizes: Sizes, dtype: torch.dtype, remedy: str = "") -> None:
    """Raises `InputError` unless `result` is a new state and an output of one head, as they are annotated."""
    is_pair = isinstance(result, tuple) and len(result) == 2
    fields = cell.State._fields  # type: ignore[attr-defined]
    fits = is_pair and getattr(result[0], "_fields", None) == fields
    if not fits:
        raise invalid("cell", f"a step that returns ({cell.State.__name__}(...), y)", f"{cell.name}, which does not")
    annotated = {**{f"the new {name}": slot for name, slot in cell.slots["State"].items()}, "y": cell.output}
    for (name, slot), value in zip(annotated.items(), (*result[0], result[1]), strict=True):
        if not _fits_slot(slot, value, sizes, dtype):
            raise _invalid(f"{name} of {cell.name}", slot, value, sizes, dtype, remedy)


def _fits_slot(slot: TensorSpec, value: Any, sizes: Sizes, dtype: torch.dtype) -> bool:
    return isinstance(value, Tensor) and value.dtype == dtype and tuple(value.shape) == slot.shape(sizes)


def _invalid(name: str, slot: TensorSpec, value: Any, sizes: Sizes, dtype: torch.dtype, remedy: str) -> InputError:
    if not isinstance(value, Tensor):
        return invalid(name, "a tensor", type(value).__name__)
    if value.dtype != dtype:
        return invalid(name, f"{_short(dtype)} like the state", _short(value.dtype), "Cast it in the step.")
    axes = ", ".join(slot.axes.split())
    return invalid(name, f"[{axes}] with {_listed(sizes)}", list(value.shape), remedy)


def _short(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _listed(sizes: Sizes) -> str:
    return ", ".join(f"{axis}={size}" for axis, size in sizes.items()) or "no letters"


def _run(cell: Cell, records: Sequence[Any], sizes: Sizes, remedy: str = "") -> Any:
    device = records[0][0].device
    try:
        # A step may draw random numbers, which must not advance the generator of the caller.
        with torch.random.fork_rng([device] if device.type == "cuda" else []):
            return cell.step(*records)
    except InputError:
        raise
    except FAULTS as error:
        if not is_fault(error):
            raise
        line = line_of_error(error)
        got = f"{reason_of(error)}{f' ({line})' if line else ''}"
        raise InputError(f"cell must be a step that runs at {_listed(sizes)}, got {got}. {remedy}".rstrip()) from error


def _distinct(sizes: Sizes) -> dict[str, int]:
    """Sizes that all differ: each size times a power of two, so that the divisors stay."""
    result: dict[str, int] = {}
    for axis, size in sizes.items():
        while size == 1 or size in result.values():
            size *= 2
        result[axis] = size
    return result


def _check_with_sizes(cell: Cell, sizes: Sizes, remedy: str = "") -> None:
    check_result(cell, _run(cell, examples(cell, sizes, torch.float32), sizes, remedy), sizes, torch.float32, remedy)


def _fits(cell: Cell, sizes: Sizes) -> bool:
    """Whether a step runs at some sizes and its results fit its annotations."""
    try:
        _check_with_sizes(cell, sizes)
    except InputError:
        return False
    return True
