"""Checks of a scan call: shape, dtype and device of every tensor, by the signature of the cell."""

from typing import Any

import torch
from torch import Tensor

from fastweights.call.state_out import check_dtype
from fastweights.call.tensors import Tensors
from fastweights.cell import Cell
from fastweights.core.autocast import PRECISIONS
from fastweights.core.errors import InputError, invalid
from fastweights.core.padding import check_lengths
from fastweights.signature import TensorSpec, learn_sizes


def check_call(cell: Cell, tensors: Tensors, out: Any) -> dict[str, int]:
    """The sizes of all axes of a call.

    Raises:
        InputError: a tensor does not fit the cell or the other tensors.
    """
    inputs, state, params, reset, lengths, initial_state = tensors
    _check_record("inputs", inputs, cell.Inputs)
    sizes: dict[str, int] = {}
    B, T, H = _leading(inputs)
    device = inputs[0].device
    _check_fields(inputs, cell.slots["Inputs"], {"B": B, "T": T, "H": H}, sizes)
    _check_params(cell, params, H, sizes)
    for name, record, leading in (
        ("state", state, {"B": B, "H": H}),
        ("initial_state", initial_state, {"H": H}),
        ("state_out", out, {"B": B, "H": H}),
    ):
        if record is not None:
            _check_state(name, record, cell, leading, sizes, device)
    if out is not None:
        check_dtype(out, torch.promote_types(tensors.dtype, torch.float32))
    check_lengths(lengths, B, device)
    _check_reset(reset, B, T, device)
    return sizes


def _check_record(parameter: str, value: Any, record: Any) -> None:
    fields = record._fields
    value_fields = getattr(value, "_fields", None)
    if value_fields != fields or len(value) != len(fields):
        article = "an" if record.__name__[0] in "AEIOU" else "a"
        requirement = f"{article} {record.__name__}({', '.join(fields)})"
        raise invalid(parameter, requirement, value_fields or type(value).__name__, "Take the type from the cell.")


def _leading(inputs: Any) -> tuple[int, ...]:
    """The sizes B, T and H."""
    first, name = inputs[0], inputs._fields[0]
    if not isinstance(first, Tensor):
        raise invalid(name, "a tensor", type(first).__name__)
    if first.ndim < 3:
        raise invalid(name, "[B, T, H, ...]", list(first.shape), "Give batch, time and heads an axis each.")
    if not all(first.shape[:3]):
        raise invalid(name, "a tensor with at least one member, step and head", list(first.shape))
    return tuple(first.shape[:3])


def _check_fields(record: Any, slots: dict[str, TensorSpec], leading: dict[str, int], sizes: dict[str, int]) -> None:
    """Checks all tensors of a record, and adds the sizes of their axes to `sizes`."""
    device = record[0].device if record and isinstance(record[0], Tensor) else None
    for (name, slot), value in zip(slots.items(), record, strict=True):
        if not (isinstance(value, Tensor) and _has_valid_dtype(value, slot) and value.device == device):
            raise _invalid_kind(name, slot, value, device, record._fields[0])
        learn_sizes(slot, value.shape[len(leading) :], sizes)
    for (name, slot), value in zip(slots.items(), record, strict=True):
        if list(value.shape) != _expected_shape(slot, leading, sizes) or not value.numel():
            raise _invalid_shape(name, slot, value, leading, sizes)


def _has_valid_dtype(value: Tensor, slot: TensorSpec) -> bool:
    """Whether a scan can compute with a tensor. Controls may be bool or integers."""
    is_mark = slot.kind == "control" and not (value.is_complex() or value.is_floating_point())
    return value.layout == torch.strided and (is_mark or value.dtype in PRECISIONS)


def _invalid_kind(name: str, slot: TensorSpec, value: Any, device: torch.device | None, first: str) -> InputError:
    if not isinstance(value, Tensor):
        return invalid(name, "a tensor", type(value).__name__)
    if value.layout != torch.strided:
        return invalid(name, "dense", value.layout, f"Use {name}.to_dense().")
    if not _has_valid_dtype(value, slot):
        remedy = f"Try torch.view_as_real({name})." if value.is_complex() else f"Try {name}.float()."
        return invalid(name, "a floating-point tensor of at least 16 bits", value.dtype, remedy)
    return invalid(name, f"on {device} like {first}", value.device)


def _expected_shape(slot: TensorSpec, leading: dict[str, int], sizes: dict[str, int]) -> list[int] | None:
    """The shape that a tensor must have; None if the size of one of its letters is unknown."""
    if any(letter.isalpha() and letter not in sizes for letter in slot.axes):
        return None
    return [*leading.values(), *slot.shape(sizes)]


def _invalid_shape(
    name: str, slot: TensorSpec, value: Tensor, leading: dict[str, int], sizes: dict[str, int]
) -> InputError:
    axes = [*leading, *slot.axes.split()]
    letters = {letter for axis in axes for letter in axis if letter.isalpha()}
    text = ", ".join(f"{axis}={size}" for axis, size in {**sizes, **leading}.items() if axis in letters)
    return invalid(name, f"[{', '.join(axes)}] with {text}", list(value.shape))


def _check_params(cell: Cell, params: Any, num_heads: int, sizes: dict[str, int]) -> None:
    if cell.Params is None:
        if params is not None:
            raise invalid("params", f"None, since {cell.name} has no slow weights", type(params))
        return
    _check_record("params", params, cell.Params)
    _check_fields(params, cell.slots["Params"], {"H": num_heads}, sizes)


def _check_state(
    name: str, state: Any, cell: Cell, leading: dict[str, int], sizes: dict[str, int], device: torch.device
) -> None:
    _check_record(name, state, cell.State)
    _check_fields(state, cell.slots["State"], leading, sizes)
    if state[0].device != device:
        raise invalid(name, f"on {device} like the inputs", state[0].device)


def _check_reset(reset: Tensor | None, B: int, T: int, device: torch.device) -> None:
    if reset is None:
        return
    if not isinstance(reset, Tensor):
        raise invalid("reset", "a tensor", type(reset).__name__)
    if reset.dtype != torch.bool:
        raise invalid("reset", "a bool tensor", reset.dtype, "Try reset.bool().")
    if list(reset.shape) != [B, T]:
        raise invalid("reset", f"[B, T] with B={B}, T={T}", list(reset.shape))
    if reset.device != device:
        raise invalid("reset", f"on {device} like the inputs", reset.device)
