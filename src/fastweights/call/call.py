"""A checked call of `scan`: what every backend is given."""

from collections.abc import Hashable, Mapping
from functools import partial, reduce
from typing import Any, NamedTuple

import torch
from torch import Tensor

from fastweights.call.state_out import check_dtype
from fastweights.call.step_check import check_step
from fastweights.cell import Cell, initial_state
from fastweights.core.autocast import PRECISIONS, full_precision
from fastweights.core.errors import require
from fastweights.core.grad_mode import unsaved
from fastweights.core.memo import remember
from fastweights.core.padding import check_ends, check_lengths, only, within
from fastweights.signature import TensorSpec, learn_sizes

FILL = 0.5
"""Stands in the place of padding. Not 0: a cell may divide by the length of a key, and 0.5 suits every role."""


class Problem(NamedTuple):
    """Inputs `[B, T, H, ...]`, state `[B, H, ...]` and params `[H, ...]`, all in the dtype of the computation.

    `initial` is the state that a reset goes back to, None without resets, and `from_zero` whether it is 0; no reset
    lies beyond a length. `dtype` is the dtype of the output. `known` is where backends keep what they have found out of
    all calls that are alike, and `found` what they have of this one. `out` is where the last state goes, if anywhere:
    a backend need not heed it.
    """

    cell: Cell
    inputs: Any
    state: Any
    initial: Any
    from_zero: bool
    params: Any
    reset: Tensor | None
    lengths: Tensor | None
    sizes: Mapping[str, int]
    dtype: torch.dtype
    known: dict[str, Any]
    found: dict[str, Any]
    out: Any = None

    @property
    def leading(self) -> tuple[int, int, int]:
        """B, T, H."""
        return tuple(self.inputs[0].shape[:3])

    @property
    def inside(self) -> Tensor | None:
        """Which steps are no padding, bool `[B, T]`; None if all are."""
        return None if self.lengths is None else within(self.lengths, self.leading[1])

    @property
    def finite_inputs(self) -> Any:
        """The inputs with `FILL` in place of the padding: backends that compute there must meet no NaN."""
        inside = self.inside
        return self.inputs if inside is None else type(self.inputs)(*(only(inside, x, FILL) for x in self.inputs))

    @property
    def mapped(self) -> "Problem":
        """The same for the cell inside, whose inputs are mapped for all steps at once, and once a call: for backends
        that go step by step, where that would take as long as the step."""
        if self.cell.inside is None:
            return self
        if "mapped" not in self.found:
            cell, prepare = self.cell.inside
            known = self.known.setdefault("inside", {})
            self.found["mapped"] = self._replace(cell=cell, inputs=prepare(self.finite_inputs), known=known, found={})
        found: Problem = self.found["mapped"]
        return found

    def __str__(self) -> str:
        B, T, H = self.leading
        sizes = " ".join(f"{axis}={size}" for axis, size in self.sizes.items())
        kind = f"{str(self.dtype).removeprefix('torch.')} on {self.inputs[0].device.type}"
        return f"{self.cell.name}, B={B} T={T} H={H} {sizes}, {kind}"


def pose(
    cell: Cell,
    inputs: Any,
    state: Any,
    params: Any,
    reset: Tensor | None,
    lengths: Tensor | None,
    initial: Any,
    out: Any = None,
    agreement: "Agreement | None" = None,
) -> Problem:
    """Checks a call and casts it to the dtype of the computation: float32, or float64 if any input is."""
    sizes, dtype, known = agreement or agree(cell, inputs, state, params, reset, lengths, initial, out)
    T = inputs[0].shape[1]
    check_ends(lengths, T)
    compute = torch.promote_types(dtype, torch.float32)
    inputs, state, params, initial = (_cast(record, compute) for record in (inputs, state, params, initial))
    from_zero, start = initial is None, None
    if state is None or reset is not None:
        start = _start(cell, initial, sizes, inputs[0])
    state = start if state is None else state
    if reset is None:
        start = None
    elif lengths is not None:
        reset = reset & within(lengths, T)
    return Problem(cell, inputs, state, start, from_zero, params, reset, lengths, sizes, dtype, known, {}, out)


def _start(cell: Cell, initial: Any, sizes: dict[str, int], like: Tensor) -> Any:
    """The state `[B, H, ...]` before the first step: that of every head, or zeros."""
    B, _, H = like.shape[:3]
    if initial is None:
        return initial_state(cell, sizes, (B, H), like)
    return type(initial)(*(leaf.expand(B, *leaf.shape) for leaf in initial))


class Agreement(NamedTuple):
    """What calls that are alike have in common."""

    sizes: dict[str, int]
    dtype: torch.dtype
    known: dict[str, Any]


_AGREED: dict[Hashable, Agreement] = {}
_KEPT: dict[Hashable, bool] = {}


def agree(
    cell: Cell,
    inputs: Any,
    state: Any,
    params: Any,
    reset: Tensor | None,
    lengths: Tensor | None,
    initial: Any,
    out: Any,
) -> Agreement:
    """What there is to know of a call that fits its cell; calls alike are checked once: a step takes microseconds."""
    kinds = (
        _kinds(inputs),
        _kinds(state),
        () if params is None else _kinds(params),
        () if reset is None else _kinds((reset,)),
        () if lengths is None else _kinds((lengths,)),
        () if initial is None else _kinds(initial),
        () if out is None else (out is state) or _kinds(out),
    )
    if None in kinds or is_observed():
        return _check(cell, inputs, state, params, reset, lengths, initial, out)
    # What a step makes without saying of what dtype depends on the default.
    key = (cell.key, kinds, torch.get_default_dtype())
    known = _AGREED.get(key)
    if known is not None:
        return known
    return remember(_AGREED, key, partial(_check_all, cell, inputs, state, params, reset, lengths, initial, out))


def is_observed() -> bool:
    """Whether what is computed now is transformed or recorded: then no step is run for any other reason."""
    return (
        torch.compiler.is_compiling()
        or torch._C._are_functorch_transforms_active()
        or torch._C._len_torch_dispatch_stack() > 0
        or torch._C._get_tracing_state() is not None
    )


def _check_all(cell: Cell, inputs: Any, state: Any, params: Any, *given: Any) -> Agreement:
    """Also that the step does what it promises, once for sizes, dtype and device."""
    agreement = _check(cell, inputs, state, params, *given)
    first = inputs[0]
    dtype = torch.promote_types(agreement.dtype, torch.float32)
    state = initial_state(cell, agreement.sizes, (1, 1), first) if state is None else state
    parts = [(state, (0, 0)), (inputs, (0, 0, 0))] + ([] if params is None else [(params, (0,))])
    key = (cell.key, tuple(agreement.sizes.items()), dtype, first.device, torch.get_default_dtype())

    def check() -> bool:
        # Out of inference mode: tensors that are made in it do not tell whether they are written into.
        with torch.inference_mode(False), full_precision(first.device), unsaved():
            one = [type(record)(*(x[place].detach().to(dtype, copy=True) for x in record)) for record, place in parts]
            check_step(cell, one, agreement.sizes)
        return True

    remember(_KEPT, key, check)
    return agreement


def _kinds(record: Any) -> Any:
    """What there is to check of a record of tensors; None for anything that is not one."""
    if record is None:
        return ()
    if not isinstance(record, tuple):
        return None
    try:
        return type(record), *[(x.shape, x.dtype, x.device, x.layout) for x in record]
    except AttributeError:
        return None


def _check(
    cell: Cell,
    inputs: Any,
    state: Any,
    params: Any,
    reset: Tensor | None,
    lengths: Tensor | None,
    initial: Any,
    out: Any,
) -> Agreement:
    _check_record("inputs", inputs, cell.Inputs)
    sizes: dict[str, int] = {}
    B, T, H = _leading(inputs)
    _check_fields(inputs, cell.slots["Inputs"], {"B": B, "T": T, "H": H}, sizes)
    _check_params(cell, params, H, sizes)
    if state is not None:
        _check_state("state", state, cell, {"B": B, "H": H}, sizes, inputs[0].device)
    if initial is not None:
        _check_state("initial", initial, cell, {"H": H}, sizes, inputs[0].device)
    if out is not None:
        _check_state("state_out", out, cell, {"B": B, "H": H}, sizes, inputs[0].device)
        check_dtype(out, torch.promote_types(_promote(inputs), torch.float32))
    check_lengths(lengths, B, inputs[0].device)
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


def _check_fields(record: Any, slots: dict[str, TensorSpec], leading: dict[str, int], sizes: dict[str, int]) -> None:
    device = record[0].device if record and isinstance(record[0], Tensor) else None
    for (name, slot), value in zip(slots.items(), record, strict=True):
        # Checked before messages are made that nobody reads: a scan of one step takes microseconds.
        if not (isinstance(value, Tensor) and _is_number(value, slot) and value.device == device):
            _refuse_kind(name, slot, value, device, record._fields[0])
        learn_sizes(slot, value.shape[len(leading) :], sizes)
    for (name, slot), value in zip(slots.items(), record, strict=True):
        if list(value.shape) != _expected(slot, leading, sizes) or not value.numel():
            _refuse_shape(name, slot, value, leading, sizes)


def _is_number(value: Tensor, slot: TensorSpec) -> bool:
    """Whether a scan can compute with it; marks may be true or false, or counted."""
    mark = slot.kind == "control" and not (value.is_complex() or value.is_floating_point())
    return value.layout == torch.strided and (mark or value.dtype in PRECISIONS)


def _refuse_kind(name: str, slot: TensorSpec, value: Any, device: torch.device | None, first: str) -> None:
    require(isinstance(value, Tensor), name, "a tensor", type(value).__name__)
    require(value.layout == torch.strided, name, "dense", value.layout, f"Use {name}.to_dense().")
    remedy = f"Try torch.view_as_real({name})." if value.is_complex() else f"Try {name}.float()."
    require(_is_number(value, slot), name, "of a floating dtype of 16 bits or more", value.dtype, remedy)
    require(False, name, f"on {device} like {first}", value.device)


def _expected(slot: TensorSpec, leading: dict[str, int], sizes: dict[str, int]) -> list[int] | None:
    """The shape that a tensor must have; None while a letter of it is not known."""
    if any(letter.isalpha() and letter not in sizes for letter in slot.axes):
        return None
    return [*leading.values(), *slot.shape(sizes)]


def _refuse_shape(name: str, slot: TensorSpec, value: Tensor, leading: dict[str, int], sizes: dict[str, int]) -> None:
    axes = [*leading, *slot.axes.split()]
    letters = {letter for axis in axes for letter in axis if letter.isalpha()}
    text = ", ".join(f"{axis}={found}" for axis, found in {**sizes, **leading}.items() if axis in letters)
    require(False, name, f"[{', '.join(axes)}] with {text}", list(value.shape))


def _promote(record: Any) -> torch.dtype:
    """The widest floating dtype; where all are marks, the default one."""
    found = [value.dtype for value in record if value.is_floating_point()] or [torch.get_default_dtype()]
    return reduce(torch.promote_types, found)


def _cast(record: Any, dtype: torch.dtype) -> Any:
    if record is None or (all(value.dtype == dtype for value in record) and not _any_is_negated(record)):
        return record
    return type(record)(*(value.to(dtype).resolve_neg() for value in record))


def _any_is_negated(record: Any) -> bool:
    """Whether any is a view of numbers with another sign than in memory, such as the imaginary part of x.conj()."""
    return not torch.compiler.is_compiling() and any(map(Tensor.is_neg, record))


def _check_params(cell: Cell, params: Any, heads: int, sizes: dict[str, int]) -> None:
    if cell.Params is None:
        require(params is None, "params", f"None, since {cell.name} has no slow weights of its own", type(params))
        return
    _check_record("params", params, cell.Params)
    _check_fields(params, cell.slots["Params"], {"H": heads}, sizes)


def _check_state(
    name: str, state: Any, cell: Cell, leading: dict[str, int], sizes: dict[str, int], device: torch.device
) -> None:
    _check_record(name, state, cell.State)
    _check_fields(state, cell.slots["State"], leading, sizes)
    require(state[0].device == device, name, f"on {device} like the inputs", state[0].device)


def _check_reset(reset: Tensor | None, B: int, T: int, device: torch.device) -> None:
    if reset is None:
        return
    require(isinstance(reset, Tensor), "reset", "a tensor", type(reset).__name__)
    require(reset.dtype == torch.bool, "reset", "of dtype bool", reset.dtype, "Try reset.bool().")
    require(list(reset.shape) == [B, T], "reset", f"[B, T] with B={B}, T={T}", list(reset.shape))
    require(reset.device == device, "reset", f"on {device} like the inputs", reset.device)
