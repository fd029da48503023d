"""Analysis of the writes, the decay and the reads of a memory at every step of one sequence."""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from fastweights.call.scan_call import ScanCall
from fastweights.call.tensors import Tensors
from fastweights.dispatch import run_call
from fastweights.inspect.rates import Range, range_of, rates_of
from fastweights.inspect.recorded_scan import RecordedScan
from fastweights.inspect.steps import alone, part_of, steps_of

PROBES = 2
"""Number of random directions for the gradients of a read; one is exact where a value is only scaled."""
COPIES = 64
"""Number of reads whose gradients are computed together."""


class MemoryTrace(NamedTuple):
    """Analysis of a memory over T time steps, for each of its H heads.

    Attributes:
        name: Name of the module of the memory in the model.
        cell: Name of the cell.
        series: Time series `[T, H]` by name: the norm of the change of the state ("written"), the share of the previous
            state that is removed ("forgotten": below 0 if it grows, above 1 if its sign changes), the norms of the
            state ("held") and of the output ("read"), the effective rank of every matrix in the state, and the rates.
        limits: Upper limits of some time series, by name.
        attention: Influence of step i on the output of step t, `[H, T, T]`. If `signed`, it is the factor of value i in
            the output, averaged over its components. Otherwise it is the norm of the derivative with respect to all
            inputs of step i.
        signed: Whether `attention` has a sign.
        rates: Names of the rates in `series`: those of the inputs, and those that the cell computes itself.
    """

    name: str
    cell: str
    series: dict[str, Tensor]
    limits: dict[str, float]
    attention: Tensor
    signed: bool
    rates: tuple[str, ...]

    @property
    def rate_ranges(self) -> dict[str, Range]:
        """The smallest and the largest value of every rate over steps and heads."""
        return {name: range_of(self.series[name]) for name in self.rates}


def analyze(scan: RecordedScan, member: int = 0) -> MemoryTrace:
    """Analyses the memory of one member of the batch.

    The effective rank is exp of the entropy of the normalised singular values (Roy and Vetterli 2007, definition 1).

    Args:
        scan: Scan that `record_scans` recorded.
        member: Index of the member of the batch.

    Returns:
        The analysis.

    Raises:
        InputError: the batch has no such member, or the member has no time step.
    """
    call = alone(scan.call, member)
    steps = list(steps_of(call))
    rows_of: dict[str, list[Tensor]] = {"written": [], "forgotten": [], "held": [], "read": []}
    for before, state, y in steps:
        change = [new - old for new, old in zip(state, before, strict=True)]
        overlap, length = _dot(state, before), _dot(before, before)
        rows_of["written"].append(_dot(change, change).sqrt())
        rows_of["forgotten"].append(torch.where(length > 0, 1 - overlap / length, 0))
        rows_of["held"].append(_dot(state, state).sqrt())
        rows_of["read"].append(y.flatten(1).norm(dim=1))
    ranks, limits = _ranks(call, [state for _, state, _ in steps])
    rates = rates_of(call, [before for before, _, _ in steps])
    series = {**{name: torch.stack(rows) for name, rows in rows_of.items()}, **ranks, **rates}
    attention, signed = _attention(call)
    return MemoryTrace(scan.name, call.cell.name, series, limits, attention, signed, tuple(rates))


def _dot(a: Any, b: Any) -> Tensor:
    """The inner product `[H]` of two states."""
    return sum((x * y).reshape(len(x), -1).sum(1) for x, y in zip(a, b, strict=True))


def _ranks(call: ScanCall, states: list[Any]) -> tuple[dict[str, Tensor], dict[str, float]]:
    ranks, limits = {}, {}
    for n, (name, slot) in enumerate(call.cell.slots["State"].items()):
        if len(slot.axes.split()) == 2:
            matrices = torch.stack([state[n] for state in states])
            ranks[f"rank of {name}"] = effective_rank(matrices)
            limits[f"rank of {name}"] = float(min(matrices.shape[-2:]))
    return ranks, limits


def effective_rank(matrices: Tensor) -> Tensor:
    """exp(-sum_i p_i log p_i) with p the singular values over their sum, of matrices `[..., m, n]`; 0 if all are 0.

    >>> [
    ...     round(float(effective_rank(matrix)), 3)
    ...     for matrix in (torch.eye(3), torch.ones(2, 3))
    ... ]
    [3.0, 1.0]
    """
    values = torch.linalg.svdvals(matrices)
    total = values.sum(-1, keepdim=True)
    p = values / total.where(total > 0, 1)
    rank = torch.special.entr(p).sum(-1).exp()
    return rank.where(total[..., 0] > 0, 0)


def _attention(call: ScanCall) -> tuple[Tensor, bool]:
    _, T, H = call.plan.leading
    names, signed = _origins(call)
    draw, first = torch.Generator().manual_seed(0), call.inputs[0]
    attention = first.new_zeros(H, T, T)
    read_steps = torch.arange(T, device=first.device).repeat_interleave(PROBES)
    for ts in read_steps.split(COPIES):
        signs, origins = _traced_reads(call, names, ts, draw)
        # Derivatives `[copies, T, H, ...]`: of a number for every sign, by every origin.
        parts = [(g * signs[:, None] if signed else g.square()).reshape(*g.shape[:3], -1).sum(3) for g in origins]
        scale = PROBES * (signs[0, 0].numel() if signed else 1)
        attention.index_add_(1, ts, sum(parts).transpose(1, 2).transpose(0, 1) / scale)  # type: ignore[union-attr]
    return attention if signed else attention.sqrt(), signed


def _origins(call: ScanCall) -> tuple[list[str], bool]:
    """The inputs that reads are traced back to, and whether they are values that a read is made of."""
    slots = call.cell.slots["Inputs"]
    for name, slot in slots.items():
        if slot.kind == "value" and slot.axes == call.cell.output.axes:
            return [name], True
    return [name for name, slot in slots.items() if slot.kind != "control"], False


def _traced_reads(call: ScanCall, names: list[str], ts: Tensor, draw: torch.Generator) -> tuple[Tensor, list[Tensor]]:
    """Random signs `[copies, H, ...]`, and the derivatives of the reads at steps `ts`, summed with them."""
    copies, end = len(ts), int(ts.max()) + 1
    T = call.plan.leading[1]

    def copied(record: Any) -> Any:
        return None if record is None else type(record)(*(x.expand(copies, *x.shape[1:]) for x in record))

    call_of_part = part_of(call, slice(None), slice(0, end))
    part, own = call_of_part.tensors, call_of_part.inputs
    inputs = {name: x.detach().expand(copies, *x.shape[1:]) for name, x in own._asdict().items()}
    origins = {name: inputs[name].clone().requires_grad_() for name in names}
    tensors = Tensors(
        inputs=type(own)(**{**inputs, **origins}),
        state=copied(part.state),
        params=part.params,
        reset=None if part.reset is None else part.reset.expand(copies, -1),
        initial_state=copied(part.initial_state),
    )
    with torch.enable_grad():
        y, _ = run_call(call.replace(tensors), "auto")
        reads = y[torch.arange(copies, device=y.device), ts]
        signs = torch.randint(0, 2, reads.shape, generator=draw, device=draw.device).to(reads) * 2 - 1
        gradients = torch.autograd.grad((reads * signs).sum(), list(origins.values()))
    # Steps after a read have no influence.
    return signs, [torch.nn.functional.pad(g, (0, 0) * (g.ndim - 2) + (0, T - end)) for g in gradients]
