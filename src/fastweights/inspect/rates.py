"""Learning rates of a memory: those that a slow network emits, and those that the memory computes itself."""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from fastweights.call.scan_call import ScanCall
from fastweights.inspect.recorded_scan import RecordedScan
from fastweights.inspect.steps import alone, steps_of

Range = tuple[float, float]
"""The smallest and the largest value."""


def rate_ranges(scans: Iterable[RecordedScan]) -> dict[str, dict[str, Range]]:
    """Computes the range of every rate of every memory, over members of the batch, time steps and heads.

    Source: Irie et al. 2022 (arXiv:2202.05780), Sec. 5, where the four rates of the SRWM range from 0.50 to 0.65 over a
    task.

    Args:
        scans: Scans that `record_scans` recorded, of any number of calls of the model.

    Returns:
        The smallest and the largest value, by the name of the memory and the name of the rate. Memories without rates
        are left out.
    """
    ranges_of: dict[str, dict[str, Range]] = {}
    for scan in scans:
        for member in range(scan.call.plan.leading[0]):
            call = alone(scan.call, member)
            for name, rate in rates_of(call, [before for before, _, _ in steps_of(call)]).items():
                ranges = ranges_of.setdefault(scan.name, {})
                ranges[name] = _joined(ranges.get(name), range_of(rate))
    return ranges_of


def range_of(rate: Tensor) -> Range:
    """The smallest and the largest value of a rate."""
    return float(rate.min()), float(rate.max())


def _joined(one: Range | None, other: Range) -> Range:
    return other if one is None else (min(one[0], other[0]), max(one[1], other[1]))


def rates_of(call: ScanCall, states: list[Any]) -> dict[str, Tensor]:
    """Rates and decays `[T, H]` of one member by name, a vector of them as its mean; `states` are those before the
    steps."""
    return {**_rate_inputs(call), **_computed_rates(call, states)}


def _rate_inputs(call: ScanCall) -> dict[str, Tensor]:
    slots = call.cell.slots["Inputs"]
    chosen = {name: getattr(call.inputs, name)[0] for name, s in slots.items() if s.kind in ("rate", "decay")}
    return {name: x.detach().flatten(2).mean(2) if x.ndim > 2 else x.detach() for name, x in chosen.items()}


@torch.no_grad()
def _computed_rates(call: ScanCall, states: list[Any]) -> dict[str, Tensor]:
    """Rates that the step computes itself."""
    cell, params = call.cell, () if call.tensors.params is None else (call.tensors.params,)
    if cell.rates is None:
        return {}
    per_head, rows = torch.vmap(cell.rates), []
    for t, before in enumerate(states):
        # A reset comes before the step.
        begins = call.tensors.reset is not None and bool(call.tensors.reset[0, t])
        state = cell.State(*([leaf[0] for leaf in call.tensors.initial_state] if begins else before))
        rates = per_head(state, cell.Inputs(*(x[0, t] for x in call.inputs)), *params)
        rows.append({name: rate.flatten(1).mean(1) if rate.ndim > 1 else rate for name, rate in rates.items()})
    return {name: torch.stack([rates[name] for rates in rows]) for name in rows[0]}
