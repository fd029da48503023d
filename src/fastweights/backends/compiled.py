"""The compiled backend: the step is traced once, lowered to loops, and built by the target of the device."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from fastweights.backends._specialisation import (
    all_specialisations,
    constant_sizes,
    specialisation_of,
    unsupported_transform,
)
from fastweights.call.plan import CallPlan, FastPath
from fastweights.call.scan_call import ScanCall, prepare
from fastweights.call.tensors import Tensors
from fastweights.compiler.op import directions_of, is_plain, scan, scan_directly
from fastweights.compiler.specialise.guard import Guard
from fastweights.compiler.specialise.specialisations import Specialisation, why_never
from fastweights.compiler.targets.target import TARGETS, OneStep, Operands, target_of
from fastweights.core.grad_mode import wants_gradients


def unsupported_reason(call: ScanCall, build: bool) -> str:
    """Why this backend cannot run a call; empty if it can. With `build`, the kernel is built to find out."""
    device = call.plan.device.type
    if device == "meta":
        return ""  # shapes need no kernel
    if device not in TARGETS:
        return f"it compiles for {' and '.join(TARGETS)}, not for {device}"
    transform = unsupported_transform()
    if transform:
        return transform
    if torch.compiler.is_compiling():
        return why_never(call.cell.key, constant_sizes(call.plan.sizes), device)
    specialisation, captured = specialisation_of(call)
    # Where nothing can be built, looking for a kernel in the cache is as cheap as lowering the step.
    if not build and not target_of(device).missing_requirement():
        return specialisation.check()
    if _is_one_step(call, captured):
        return specialisation.build_one_step()
    return specialisation.build(directions_of(call.plan.wants_gradients or wants_gradients(captured)))


def build_all(call: ScanCall) -> str:
    """Builds the kernels for any number of steps and for one step; returns why it cannot, else an empty string."""
    specialisation, _ = specialisation_of(call)
    return specialisation.build(directions_of(True)) or specialisation.build_one_step()


def cost(call: ScanCall) -> float:
    """The unit of all costs: the time of a compiled kernel."""
    return 1.0


def describe(call: ScanCall) -> str:
    """No details."""
    return ""


def run(call: ScanCall) -> tuple[Tensor, Any]:
    """Runs the compiled cell."""
    operands = _operands(call)
    if torch.compiler.is_compiling():
        y, state = scan(call.cell, operands)
        return y.to(call.plan.dtype), call.cell.State(*state)
    specialisation, captured = specialisation_of(call)
    H, dtype = call.plan.leading[2], call.plan.compute_dtype
    if captured:
        operands = operands._replace(tensors=[*operands.tensors, *(x.to(dtype).expand(H, *x.shape) for x in captured)])
    if specialisation.one_step is not None and _is_one_step(call, captured):
        y, last = specialisation.one_step(operands.tensors, operands.initial_state, operands.reset, call.out)
    elif is_plain(operands.tensors) and specialisation.kernel is not None:
        needs_gradients = call.plan.wants_gradients or wants_gradients(captured)
        y, last = scan_directly(specialisation.kernel, specialisation.cell, operands, needs_gradients)
    else:
        y, last = scan(specialisation.cell, operands)
    return y.to(call.plan.dtype), call.cell.State(*last)


def _operands(call: ScanCall) -> Operands:
    _, state, params, reset, lengths, initial_state = call.tensors
    lengths = None if lengths is None else lengths.long()
    return Operands(
        [*call.inputs, *state, *(params or ())], [] if initial_state is None else list(initial_state), reset, lengths
    )


def fast_path(call: ScanCall) -> FastPath | None:
    """A function that runs calls of the same signature as long as the guard of the step holds.

    None if the step cannot be guarded, or if PyTorch must see the call.
    """
    if torch.compiler.is_compiling() or unsupported_transform() or not is_plain(call.tensors.all()):
        return None
    specialisation, captured = specialisation_of(call)
    guard = all_specialisations(call.plan).guard
    if guard is None:
        return None
    one_step = specialisation.one_step if _is_one_step(call, captured) else None
    if one_step is not None and call.plan.has_state and call.tensors.reset is None:
        return _one_step_path(call.plan, guard, one_step)
    return None if specialisation.kernel is None and one_step is None else _path(call.plan, guard, specialisation)


def _path(plan: CallPlan, guard: Guard, specialisation: Specialisation) -> FastPath:
    """The fast path of any call."""

    def run_guarded(tensors: Tensors, out: Any) -> tuple[Tensor, Any] | None:
        if not guard.holds():
            return None
        call = prepare(plan, tensors, out)
        call.specialisation = specialisation, ()
        return run(call)

    return run_guarded


def _one_step_path(plan: CallPlan, guard: Guard, one_step: OneStep) -> FastPath:
    """The fast path of one time step without gradients or resets. It skips `prepare`, which takes longer than the
    step."""
    State, dtype, is_cast = plan.cell.State, plan.compute_dtype, plan.dtype is not plan.compute_dtype

    def run_guarded(tensors: Tensors, out: Any) -> tuple[Tensor, Any] | None:
        if not guard.holds():
            return None
        inputs, state, params, *_ = tensors
        operands = [*inputs, *state] if params is None else [*inputs, *state, *params]
        if plan.needs_cast:
            operands = [x.to(dtype) for x in operands]
        y, last = one_step(operands, out=out)
        return y.to(plan.dtype) if is_cast else y, State(*last) if out is None else out

    return run_guarded


def _is_one_step(call: ScanCall, captured: Sequence[Tensor]) -> bool:
    """Whether a call is one time step without gradients."""
    plan, tensors = call.plan, call.tensors
    if plan.leading[1] != 1 or tensors.lengths is not None or plan.wants_gradients or wants_gradients(captured):
        return False
    return is_plain(tensors.all()) and not unsupported_transform()
