"""Look-ups of the backends that compile the step of a call: its specialisation, and transforms that they cannot run."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from fastweights.call.plan import CallPlan
from fastweights.call.scan_call import ScanCall
from fastweights.compiler.specialise.specialisations import Specialisation, Specialisations, specialisations_of


def specialisation_of(call: ScanCall) -> tuple[Specialisation, Sequence[Tensor]]:
    """The specialisation that fits the step now, and the tensors that the step captures; looked up once per call."""
    if call.specialisation is None:
        call.specialisation = all_specialisations(call.plan).current()
    specialisation: tuple[Specialisation, Sequence[Tensor]] = call.specialisation
    return specialisation


def all_specialisations(plan: CallPlan) -> Specialisations:
    """The specialisations of the step of a plan."""
    return specialisations_of(plan.cell, plan.sizes, plan.compute_dtype, plan.device.type)


def constant_sizes(sizes: Mapping[str, int]) -> tuple[tuple[str, int], ...]:
    """The sizes of a cell's axes as numbers, also where `torch.compile` traces them as symbols."""
    return tuple((axis, int(size)) for axis, size in sizes.items())


def unsupported_transform() -> str:
    """The reason why an active transform needs more than a first derivative in reverse mode; empty without one."""
    if torch._C._are_functorch_transforms_active():
        return "it only has a backward pass for autograd, which torch.func (grad, vmap, jvp, ...) cannot use"
    if not torch.compiler.is_compiling() and torch.autograd.forward_ad._current_level >= 0:
        return "it has no forward-mode derivatives"
    return ""
