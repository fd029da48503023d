"""A checked call of `scan`: what every backend is given."""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from fastweights.cell import Cell, initial_state
from fastweights.errors import require
from fastweights.promise import check_step
from fastweights.remember import remember
from fastweights.signature import Slot, learn_sizes


@dataclass(frozen=True)
class Problem:
    """Inputs `[B, T, H, ...]`, state `[B, H, ...]` and params `[H, ...]`, all in the dtype of the computation.

    `initial` is the state that a reset goes back to, None without resets; `dtype` is the dtype of the output. `known`
    is where backends keep what they have found out of all calls that are alike, and `found` what they have of this one.
    """

    cell: Cell
    inputs: Any
    state: Any
    initial: Any
    params: Any
    reset: Tensor | None
    sizes: Mapping[str, int]
    dtype: torch.dtype
    known: dict[str, Any]
    found: dict[str, Any]

    @property
    def leading(self) -> tuple[int, int, int]:
        """B, T, H."""
        return tuple(self.inputs[0].shape[:3])

    def __str__(self) -> str:
        B, T, H = self.leading
        sizes = " ".join(f"{axis}={size}" for axis, size in self.sizes.items())
        kind = f"{str(self.dtype).removeprefix('torch.')} on {self.inputs[0].device.type}"
        return f"{self.cell.name}, B={B} T={T} H={H} {sizes}, {kind}"


def pose(cell: Cell, inputs: Any, state: Any, params: Any, reset: Tensor | None) -> Problem:
    """Checks a call and casts it to the dtype of the computation: float32, or float64 if anything is."""
    sizes, dtype, known = _agree(cell, inputs, state, params, reset)
    compute = torch.promote_types(dtype, torch.float32)
    inputs, state, params = (_cast(record, compute) for record in (inputs, state, params))
    initial = None
    if state is None or reset is not None:
        initial = initial_state(cell, sizes, tuple(inputs[0].shape[:3:2]), inputs[0])
    state = initial if state is None else state
    return Problem(cell, inputs, state, None if reset is None else initial, params, reset, sizes, dtype, known, {})


class Agreement(NamedTuple):
    """What calls that are alike have in common."""

    sizes: dict[str, int]
    dtype: torch.dtype
    known: dict[str, Any]


_AGREED: dict[Hashable, Agreement] = {}
_KEPT: dict[Hashable, bool] = {}


def _agree(cell: Cell, inputs: Any, state: Any, params: Any, reset: Tensor | None) -> Agreement:
    """What there is to know of a call that fits its cell; calls alike are checked once: a step takes microseconds."""
    kinds = _kinds(inputs), _kinds(state), _kinds(params), _kinds(None if reset is None else (reset,))
    if torch.compiler.is_compiling() or None in kinds or is_observed():
        return _check(cell, inputs, state, params, reset)
    # What a step makes without saying of what dtype depends on the default.
    key = (cell.key, kinds, torch.get_default_dtype())
    return remember(_AGREED, key, lambda: _check_all(cell, inputs, state, params, reset))


def is_observed() -> bool:
    """Whether what is computed now is transformed or recorded: then no step is run for any other reason."""
    return torch._C._are_functorch_transforms_active() or torch._C._len_torch_dispatch_stack() > 0


def _check_all(cell: Cell, inputs: Any, state: Any, params: Any, reset: Tensor | None) -> Agreement:
    """Also that the step does what it promises, once for sizes, dtype and device."""
    agreement = _check(cell, inputs, state, params, reset)
    first = inputs[0]
    dtype = torch.promote_types(agreement.dtype, torch.float32)
    state = initial_state(cell, agreement.sizes, (1, 1), first) if state is None else state
    parts = [(state, (0, 0)), (inputs, (0, 0, 0))] + ([] if params is None else [(params, (0,))])
    one = [type(record)(*(x[place].detach().to(dtype, copy=True) for x in record)) for record, place in parts]
    key = (cell.key, tuple(agreement.sizes.items()), dtype, first.device, torch.get_default_dtype())

    def check() -> bool:
        with torch.autocast(first.device.type, enabled=False):
            check_step(cell, one, agreement.sizes)
        return True

    remember(_KEPT, key, check)
    return agreement


def _kinds(record: Any) -> Any:
    """What there is to check of a record of tensors; None for anything that is not one."""
    if record is None:
        return ()
    if not isinstance(record, tuple) or not all(isinstance(x, Tensor) for x in record):
        return None
    return (getattr(record, "_fields", None), *[(x.shape, x.dtype, x.device) for x in record])


def _check(cell: Cell, inputs: Any, state: Any, params: Any, reset: Tensor | None) -> Agreement:
    _check_record("inputs", inputs, cell.Inputs)
    sizes: dict[str, int] = {}
    B, T, H = _leading(inputs)
    _check_fields(inputs, cell.slots["Inputs"], {"B": B, "T": T, "H": H}, sizes)
    _check_params(cell, params, H, sizes)
    if state is not None:
        _check_state(cell, state, B, H, sizes, inputs[0].device)
    _check_reset(reset, B, T, inputs[0].device)
    return Agreement(sizes, _promote(inputs), {})


def _check_record(parameter: str, value: Any, record: Any) -> None:
    fields = record._fields
    fits = getattr(value, "_fields", None) == fields and len(value) == len(fields)
    got = getattr(value, "_fields", None) or type(value).__name__
    require(fits, parameter, f"a {record.__name__}({', '.join(fields)})", got, "Take the type from the cell.")


def _leading(inputs: Any) -> tuple[int, ...]:
    first, name = inputs[0], inputs._fields[0]
    require(isinstance(first, Tensor), name, "a tensor", type(first).__name__)
    require(first.ndim >= 3, name, "[B, T, H, ...]", list(first.shape), "Give batch, time and heads an axis each.")
    require(all(first.shape[:3]), name, "of at least one batch, step and head", list(first.shape))
    return tuple(first.shape[:3])


def _check_fields(record: Any, slots: dict[str, Slot], leading: dict[str, int], sizes: dict[str, int]) -> None:
    device = record[0].device if record and isinstance(record[0], Tensor) else None
    for (name, slot), value in zip(slots.items(), record, strict=True):
        # Checked before messages are made that nobody reads: a scan of one step takes microseconds.
        if not (isinstance(value, Tensor) and value.is_floating_point() and value.device == device):
            _refuse_kind(name, value, device, record._fields[0])
        learn_sizes(slot, value.shape[len(leading) :], sizes)
    for (name, slot), value in zip(slots.items(), record, strict=True):
        if list(value.shape) != _expected(slot, leading, sizes) or not value.numel():
            _refuse_shape(name, slot, value, leading, sizes)


def _refuse_kind(name: str, value: Any, device: torch.device | None, first: str) -> None:
    require(isinstance(value, Tensor), name, "a tensor", type(value).__name__)
    require(value.is_floating_point(), name, "of a floating dtype", value.dtype, f"Try {name}.float().")
    require(False, name, f"on {device} like {first}", value.device)


def _expected(slot: Slot, leading: dict[str, int], sizes: dict[str, int]) -> list[int] | None:
    """The shape that a tensor must have; None while a letter of it is not known."""
    if any(letter.isalpha() and letter not in sizes for letter in slot.axes):
        return None
    return [*leading.values(), *slot.shape(sizes)]


def _refuse_shape(name: str, slot: Slot, value: Tensor, leading: dict[str, int], sizes: dict[str, int]) -> None:
    axes = [*leading, *slot.axes.split()]
    letters = {letter for axis in axes for letter in axis if letter.isalpha()}
    text = ", ".join(f"{axis}={found}" for axis, found in {**sizes, **leading}.items() if axis in letters)
    require(False, name, f"[{', '.join(axes)}] with {text}", list(value.shape))


def _promote(record: Any) -> torch.dtype:
    dtype = record[0].dtype
    for value in record:
        dtype = torch.promote_types(dtype, value.dtype)
    return dtype


def _cast(record: Any, dtype: torch.dtype) -> Any:
    if record is None or all(value.dtype == dtype for value in record):
        return record
    return type(record)(*(value.to(dtype) for value in record))


def _check_params(cell: Cell, params: Any, heads: int, sizes: dict[str, int]) -> None:
    if cell.Params is None:
        require(params is None, "params", f"None, since {cell.name} has no slow weights of its own", type(params))
        return
    _check_record("params", params, cell.Params)
    _check_fields(params, cell.slots["Params"], {"H": heads}, sizes)


def _check_state(cell: Cell, state: Any, B: int, H: int, sizes: dict[str, int], device: torch.device) -> None:
    _check_record("state", state, cell.State)
    _check_fields(state, cell.slots["State"], {"B": B, "H": H}, sizes)
    require(state[0].device == device, "state", f"on {device} like the inputs", state[0].device)


def _check_reset(reset: Tensor | None, B: int, T: int, device: torch.device) -> None:
    if reset is None:
        return
    require(isinstance(reset, Tensor), "reset", "a tensor", type(reset).__name__)
    require(reset.dtype == torch.bool, "reset", "of dtype bool", reset.dtype, "Try reset.bool().")
    require(list(reset.shape) == [B, T], "reset", f"[B, T] with B={B}, T={T}", list(reset.shape))
    require(reset.device == device, "reset", f"on {device} like the inputs", reset.device)
