"""The current form of the step of a call, which backends that compile the step look up."""

from collections.abc import Sequence

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
