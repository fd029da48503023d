"""Analysis of the writes, the decay and the reads of a memory at every step of one sequence."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

from fastweights.call.call import Problem
from fastweights.core.errors import require
from fastweights.dispatch import run_problem
from fastweights.inspect.recorded_scan import RecordedScan

PROBES = 2
"""Number of random directions for the gradients of a read; one is exact where a value is only scaled."""
COPIES = 64
"""Number of reads whose gradients are computed together."""


class MemoryTrace(NamedTuple):
    """A memory over T steps, each of its H heads.

    `series` are time series `[T, H]` by name, with upper `limits` of some. They are the norm of the change of the
    state ("written"), the share of the previous state that is removed ("forgotten": below 0 if it grows, above 1 if its
    sign changes), the norms of the state ("held") and of the output ("read"), the effective rank of every matrix in the
    state, and the rates of the cell.

    `attention` `[H, T, T]` is the influence of step i on read t: if `signed`, the factor of value i in the read,
    averaged over its components, otherwise the norm of the derivative by all inputs of step i.
    """

    name: str
    cell: str
    series: dict[str, Tensor]
    limits: dict[str, float]
    attention: Tensor
    signed: bool


def analyze(scan: RecordedScan, member: int = 0) -> MemoryTrace:
    """Analyses the memory of one member of the batch.

    Effective rank: exp of the entropy of the singular values over their sum (Roy and Vetterli 2007, definition 1).
    """
    problem = _alone(scan.problem, member)
    steps = [(before, state, y) for before, state, y in _steps(problem)]
    rows_of: dict[str, list[Tensor]] = {"written": [], "forgotten": [], "held": [], "read": []}
    for before, state, y in steps:
        change = [new - old for new, old in zip(state, before, strict=True)]
        overlap, length = _dot(state, before), _dot(before, before)
        rows_of["written"].append(_dot(change, change).sqrt())
        rows_of["forgotten"].append(torch.where(length > 0, 1 - overlap / length, 0))
        rows_of["held"].append(_dot(state, state).sqrt())
        rows_of["read"].append(y.flatten(1).norm(dim=1))
    ranks, limits = _ranks(problem, [state for _, state, _ in steps])
    series = {**{name: torch.stack(rows) for name, rows in rows_of.items()}, **ranks, **_rates(problem)}
    attention, signed = _attention(problem)
    return MemoryTrace(scan.name, problem.cell.name, series, limits, attention, signed)


def _alone(problem: Problem, member: int) -> Problem:
    """The call for one member, without padding, with mapped inputs."""
    B, T, _ = problem.leading
    require(0 <= member < B, "member", f"one of the {B} of the batch", member)
    problem = problem.mapped
    end = T if problem.lengths is None else int(problem.lengths[member])
    require(end > 0, "member", "one with steps", "an empty one")
    return _part(problem, slice(member, member + 1), slice(0, end))


def _part(problem: Problem, members: slice, steps: slice) -> Problem:
    def cut(record: Any) -> Any:
        return None if record is None else type(record)(*(leaf[members] for leaf in record))

    return problem._replace(
        inputs=type(problem.inputs)(*(x[members, steps] for x in problem.inputs)),
        state=cut(problem.state),
        initial=cut(problem.initial),
        reset=None if problem.reset is None else problem.reset[members, steps],
        lengths=None,
        known={},
        found={},
    )


@torch.no_grad()
def _steps(problem: Problem) -> Iterator[tuple[Any, Any, Tensor]]:
    """Yields the state before and after every step, `[H, ...]` each, and the output."""
    state = problem.state
    for t in range(problem.leading[1]):
        y, after = run_problem(_part(problem, slice(None), slice(t, t + 1))._replace(state=state), "reference")
        yield [leaf[0] for leaf in state], [leaf[0] for leaf in after], y[0, 0]
        state = after


def _dot(a: Any, b: Any) -> Tensor:
    """The inner product `[H]` of two states."""
    return sum((x * y).reshape(len(x), -1).sum(1) for x, y in zip(a, b, strict=True))


def _ranks(problem: Problem, states: list[Any]) -> tuple[dict[str, Tensor], dict[str, float]]:
    ranks, limits = {}, {}
    for n, (name, slot) in enumerate(problem.cell.slots["State"].items()):
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


def _rates(problem: Problem) -> dict[str, Tensor]:
    slots = problem.cell.slots["Inputs"]
    chosen = {name: getattr(problem.inputs, name)[0] for name, s in slots.items() if s.kind in ("rate", "decay")}
    return {name: x.detach().flatten(2).mean(2) if x.ndim > 2 else x.detach() for name, x in chosen.items()}


def _attention(problem: Problem) -> tuple[Tensor, bool]:
    _, T, H = problem.leading
    names, signed = _origins(problem)
    draw, first = torch.Generator().manual_seed(0), problem.inputs[0]
    attention = first.new_zeros(H, T, T)
    steps = torch.arange(T, device=first.device).repeat_interleave(PROBES)
    for ts in steps.split(COPIES):
        signs, origins = _probe(problem, names, ts, draw)
        # Derivatives `[copies, T, H, ...]` of the signed sums of reads by every origin.
        parts = [(g * signs[:, None] if signed else g.square()).reshape(*g.shape[:3], -1).sum(3) for g in origins]
        scale = PROBES * (signs[0, 0].numel() if signed else 1)
        attention.index_add_(1, ts, sum(parts).transpose(1, 2).transpose(0, 1) / scale)  # type: ignore[union-attr]
    return attention if signed else attention.sqrt(), signed


def _origins(problem: Problem) -> tuple[list[str], bool]:
    """Names of the inputs that reads are traced back to, and whether they are values, of which reads are sums."""
    slots = problem.cell.slots["Inputs"]
    for name, slot in slots.items():
        if slot.kind == "value" and slot.axes == problem.cell.output.axes:
            return [name], True
    return [name for name, slot in slots.items() if slot.kind != "control"], False


def _probe(problem: Problem, names: list[str], ts: Tensor, draw: torch.Generator) -> tuple[Tensor, list[Tensor]]:
    """Random signs `[copies, H, ...]`, and the derivatives of the reads at steps `ts`, summed with them."""
    copies, end = len(ts), int(ts.max()) + 1
    T = problem.leading[1]

    def copied(record: Any) -> Any:
        return None if record is None else type(record)(*(x.expand(copies, *x.shape[1:]) for x in record))

    part = _part(problem, slice(None), slice(0, end))
    inputs = {name: x.detach().expand(copies, *x.shape[1:]) for name, x in part.inputs._asdict().items()}
    origins = {name: inputs[name].clone().requires_grad_() for name in names}
    reset = None if part.reset is None else part.reset.expand(copies, -1)
    call = part._replace(
        inputs=type(part.inputs)(**{**inputs, **origins}),
        **{"state": copied(part.state), "initial": copied(part.initial), "reset": reset},
    )
    with torch.enable_grad():
        y, _ = run_problem(call, "auto")
        reads = y[torch.arange(copies, device=y.device), ts]
        signs = torch.randint(0, 2, reads.shape, generator=draw, device=draw.device).to(reads) * 2 - 1
        gradients = torch.autograd.grad((reads * signs).sum(), list(origins.values()))
    # Steps after a read have no influence.
    return signs, [torch.nn.functional.pad(g, (0, 0) * (g.ndim - 2) + (0, T - end)) for g in gradients]
