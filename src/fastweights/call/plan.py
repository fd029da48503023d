"""The plan of a scan call: the facts that all calls of one signature share, computed once."""

from collections.abc import Callable, Hashable
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from fastweights.call.step_check import check_step
from fastweights.call.tensors import Tensors
from fastweights.call.validation import check_call
from fastweights.cell import Cell, initial_state, letters
from fastweights.core.autocast import full_precision
from fastweights.core.grad_mode import wants_gradients, without_saved_tensor_hooks
from fastweights.core.memo import get_or_compute

FastPath = Callable[[Tensors, Any], tuple[Tensor, Any] | None]
"""Runs a call `(tensors, state_out)` of a known signature; None if the step has changed since the first call."""


class CallPlan(NamedTuple):
    """The facts that all calls of one signature share.

    A signature is the cell, the type, shape, dtype, device and `requires_grad` of every tensor, the gradient mode and
    the default dtype.
    """

    cell: Cell
    sizes: dict[str, int]
    leading: tuple[int, int, int]
    """B, T, H."""
    device: torch.device
    dtype: torch.dtype
    """The dtype of the output."""
    compute_dtype: torch.dtype
    """The dtype of the computation and of the states: float32, or float64 if any input is."""
    has_state: bool
    """Whether the caller passes the state before the first step."""
    needs_cast: bool
    """Whether any tensor has another dtype than that of the computation."""
    wants_gradients: bool
    start_shapes: tuple[tuple[int, ...], ...] | None
    """The shapes of a state of zeros; None if only a passed state determines all sizes."""
    order: list[str]
    """The backends in the order in which `auto` tries them; empty until the first call."""
    fast_paths: dict[str, FastPath | None]
    """The fast paths of backends that have run calls of the signature; None for a backend without one."""


_PLANS: dict[Hashable, CallPlan] = {}
_CHECKED_STEPS: dict[Hashable, bool] = {}


def plan_of(cell: Cell, tensors: Tensors, out: Any) -> CallPlan:
    """The plan of a call. Calls of one signature are checked once, since a check takes longer than a step.

    Raises:
        InputError: a tensor does not fit the cell, or the results of the step do not fit its annotations.
    """
    signature = None if is_observed() else _signature(cell, tensors, out)
    if signature is None:
        return _plan(cell, tensors, out)
    return _PLANS.get(signature) or get_or_compute(_PLANS, signature, partial(_checked_plan, cell, tensors, out))


def is_observed() -> bool:
    """Whether PyTorch transforms or records the current operations. Then a check must not run the step."""
    return (
        torch.compiler.is_compiling()
        or torch._C._are_functorch_transforms_active()
        or torch._C._len_torch_dispatch_stack() > 0
        or torch._C._get_tracing_state() is not None
        or torch.autograd.forward_ad._current_level >= 0
    )


def _signature(cell: Cell, tensors: Tensors, out: Any) -> Hashable:
    """The signature of a call; None if an argument is no tensor or no record of tensors."""
    inputs, state, params, reset, lengths, initial_state = tensors
    # A step that creates a tensor without a dtype depends on the default dtype.
    parts: list[Any] = [cell.key, torch.get_default_dtype(), torch.is_grad_enabled(), out is not None and out is state]
    marks = [None if x is None else (x,) for x in (reset, lengths)]
    try:
        for record in (inputs, state, params, initial_state, out, *marks):
            parts.append(type(record))
            for x in () if record is None else record:
                parts.append((type(x), x.shape, x.dtype, x.device, x.layout, x.requires_grad))
    except (AttributeError, TypeError):
        return None
    return tuple(parts)


def _plan(cell: Cell, tensors: Tensors, out: Any) -> CallPlan:
    sizes = check_call(cell, tensors, out)
    B, T, H = tensors.inputs[0].shape[:3]
    dtype = tensors.dtype
    compute_dtype = torch.promote_types(dtype, torch.float32)
    slots = cell.slots["State"].values()
    has_sizes = all(letter in sizes for letter in letters(cell, "State"))
    all_tensors = tensors.all()
    return CallPlan(
        cell=cell,
        sizes=sizes,
        leading=(B, T, H),
        device=tensors.inputs[0].device,
        dtype=dtype,
        compute_dtype=compute_dtype,
        has_state=tensors.state is not None,
        needs_cast=any(x.dtype != compute_dtype for x in all_tensors),
        wants_gradients=wants_gradients(all_tensors),
        start_shapes=tuple([(B, H, *slot.shape(sizes)) for slot in slots]) if has_sizes else None,
        order=[],
        fast_paths={},
    )


def _checked_plan(cell: Cell, tensors: Tensors, out: Any) -> CallPlan:
    """The plan, after a check of the step on one head, once per sizes, dtype and device."""
    plan, first = _plan(cell, tensors, out), tensors.inputs[0]
    state = initial_state(cell, plan.sizes, (1, 1), first) if tensors.state is None else tensors.state
    parts = [(state, (0, 0)), (tensors.inputs, (0, 0, 0))]
    parts += [] if tensors.params is None else [(tensors.params, (0,))]
    key = (cell.key, tuple(plan.sizes.items()), plan.compute_dtype, first.device, torch.get_default_dtype())

    def check() -> bool:
        # Out of inference mode: an inference tensor has no version counter, which shows whether a step writes into it.
        with torch.inference_mode(False), full_precision(first.device), without_saved_tensor_hooks():
            one_head = [
                type(record)(*(x[index].detach().to(plan.compute_dtype, copy=True) for x in record))
                for record, index in parts
            ]
            check_step(cell, one_head, plan.sizes)
        return True

    get_or_compute(_CHECKED_STEPS, key, check)
    return plan
