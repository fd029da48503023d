"""What a memory wrote, forgot and read at every step of one sequence."""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from fastweights.call.scan_call import ScanCall
from fastweights.call.tensors import Tensors
from fastweights.dispatch import run_call
from fastweights.inspect.rates import Range, range_of, rates_of
from fastweights.inspect.steps import alone, part_of, steps_of
from fastweights.inspect.watch import Watched

PROBES = 2
"""Random directions in which a read is asked for its origins; one is exact where a value is only scaled."""
COPIES = 64
"""Reads that are asked at once."""


class Contents(NamedTuple):
    """A memory over T steps, each of its H heads.

    `courses` are numbers `[T, H]` by name, `limits` how large some of them can be: the length of what a step changed
    in the state ("written"), the share of the state before it that is gone after ("forgotten": below 0 if there is more
    of it, above 1 if it is turned round), the length of the state ("held") and of what was read ("read"), the effective
    rank of every matrix in the state, and the `rates`: those of the inputs, and those that the cell computes itself.
    `attention` `[H, T, T]` says how much of read t stems from step i: if `signed`, the factor with which value i is
    part of it, averaged over its places, else the length of the derivative by all inputs of step i.
    """

    name: str
    cell: str
    courses: dict[str, Tensor]
    limits: dict[str, float]
    attention: Tensor
    signed: bool
    rates: tuple[str, ...]

    @property
    def rate_ranges(self) -> dict[str, Range]:
        """The smallest and the largest value of every rate over steps and heads."""
        return {name: range_of(self.courses[name]) for name in self.rates}


def look_into(watched: Watched, member: int = 0) -> Contents:
    """What the memory of one member of the batch did.

    Effective rank: exp of the entropy of the singular values over their sum (Roy and Vetterli 2007, definition 1).
    """
    call = alone(watched.call, member)
    steps = list(steps_of(call))
    courses: dict[str, list[Tensor]] = {"written": [], "forgotten": [], "held": [], "read": []}
    for before, state, y in steps:
        change = [new - old for new, old in zip(state, before, strict=True)]
        kept, length = _dot(state, before), _dot(before, before)
        courses["written"].append(_dot(change, change).sqrt())
        courses["forgotten"].append(torch.where(length > 0, 1 - kept / length, 0))
        courses["held"].append(_dot(state, state).sqrt())
        courses["read"].append(y.flatten(1).norm(dim=1))
    ranks, limits = _ranks(call, [state for _, state, _ in steps])
    rates = rates_of(call, [before for before, _, _ in steps])
    found = {**{name: torch.stack(rows) for name, rows in courses.items()}, **ranks, **rates}
    attention, signed = _attention(call)
    return Contents(watched.name, call.cell.name, found, limits, attention, signed, tuple(rates))


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

    >>> [round(float(effective_rank(matrix)), 3) for matrix in (torch.eye(3), torch.ones(2, 3))]
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
    draw, first = torch.Generator().manual_seed(0), call.tensors.inputs[0]
    attention = first.new_zeros(H, T, T)
    asked = torch.arange(T, device=first.device).repeat_interleave(PROBES)
    for ts in asked.split(COPIES):
        signs, origins = _asked(call, names, ts, draw)
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


def _asked(call: ScanCall, names: list[str], ts: Tensor, draw: torch.Generator) -> tuple[Tensor, list[Tensor]]:
    """Random signs `[copies, H, ...]`, and the derivatives of the reads at steps `ts`, summed with them."""
    copies, end = len(ts), int(ts.max()) + 1
    T = call.plan.leading[1]

    def copied(record: Any) -> Any:
        return None if record is None else type(record)(*(x.expand(copies, *x.shape[1:]) for x in record))

    part = part_of(call, slice(None), slice(0, end)).tensors
    inputs = {name: x.detach().expand(copies, *x.shape[1:]) for name, x in part.inputs._asdict().items()}
    origins = {name: inputs[name].clone().requires_grad_() for name in names}
    tensors = Tensors(
        inputs=type(part.inputs)(**{**inputs, **origins}),
        state=copied(part.state),
        params=part.params,
        reset=None if part.reset is None else part.reset.expand(copies, -1),
        initial=copied(part.initial),
    )
    with torch.enable_grad():
        y, _ = run_call(call.replace(tensors), "auto")
        reads = y[torch.arange(copies, device=y.device), ts]
        signs = torch.randint(0, 2, reads.shape, generator=draw, device=draw.device).to(reads) * 2 - 1
        found = torch.autograd.grad((reads * signs).sum(), list(origins.values()))
    # What comes after a read is no part of it.
    return signs, [torch.nn.functional.pad(g, (0, 0) * (g.ndim - 2) + (0, T - end)) for g in found]
