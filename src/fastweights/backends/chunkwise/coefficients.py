"""The coefficients of a scan: those of the plan, and what resets and lengths make of them."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from fastweights.backends.chunkwise.chunks import Across, Chunks, Over, Reads, Writes, chunk_size
from fastweights.backends.chunkwise.decay import fading
from fastweights.backends.chunkwise.lowering import Scanned, call
from fastweights.backends.chunkwise.running_max import later
from fastweights.call.call import FILL, Problem
from fastweights.compiler.affine.form import Part
from fastweights.compiler.ir.nodes import Shape
from fastweights.core.padding import only


class Begun(NamedTuple):
    """A scan, and what is to be added to its last S where resets go back to a `start` `[B, H, R, K]`, of which so much
    is `left` at the end, `[B, H, 1]` or `[B, H, K]`.

    What is scanned then is S - start * left, with `left` the decays since the last reset (0 if there was none). That
    difference is 0 after a reset, as chunks need it, and affine like S, with start * (left before the step) given to
    what erases.
    """

    over: Over
    start: Tensor | None
    left: Tensor | None


def begun(stage: Scanned, problem: Problem, given: Mapping[str, Tensor], extra: int = 0) -> Begun:
    """The scan of a stage; with `extra` rows to which nothing is written."""
    time = {name: given[name] for name in stage.function.moving}
    still = [given[name] for name in stage.function.still]
    fills, start, left = dict.fromkeys(time, FILL), None, None
    marks: dict[str, tuple[Tensor, float]] = {}
    if problem.inside is not None:
        marks["inside"] = problem.inside[..., None], 0.0
    if problem.reset is not None:
        marks["stays"] = ~problem.reset[..., None], 1.0
    if problem.reset is not None and not problem.from_zero:
        start = matrix(stage, problem.initial)
        before, after = _left(stage, problem, given)
        marks |= {"left_before": (before, 0.0), "left_after": (after, 0.0)}
        left, still = after[:, -1], [*still, start]
    time |= {name: mark for name, (mark, _) in marks.items()}
    fills |= {name: fill for name, (_, fill) in marks.items()}
    part, rows = stage.parts[0], sum(part.height for part in stage.parts) + extra
    made = Made(stage, tuple(time), len(stage.function.still), extra)
    B, T, H = problem.leading
    numbers = B * H * part.matrices * len(stage.writes) * (part.width + rows)
    size = chunk_size(T, part.width)
    return Begun(Over(made, tuple(time.values()), tuple(fills.values()), tuple(still), size, numbers), start, left)


class Write(NamedTuple):
    """One of a step's: u key^T with u = value - S erase."""

    key: Tensor
    erase: Tensor | None
    value: Tensor


class Step(NamedTuple):
    """The coefficients of all steps, `[N, B, H G, C, ...]` with G groups.

    `offsets` are added to what the queries read, and `across_offsets` to what the vectors over the rows read.
    """

    decay: Tensor | None
    writes: list[Write]
    queries: list[Tensor]
    across: list[Tensor]
    offsets: list[Tensor]
    across_offsets: list[Tensor]


class Made:
    """Makes the coefficients of a stage for chunks, of what is given of the same steps by `names`."""

    def __init__(self, stage: Scanned, names: tuple[str, ...], still: int, extra: int) -> None:
        self.stage, self.names, self.still, self.extra = stage, names, still, extra

    def __call__(self, time: Sequence[Tensor], still: Sequence[Tensor], missing: int) -> Chunks:
        stage, part, front = self.stage, self.stage.parts[0], tuple(time[0].shape[:4])
        count = len(stage.function.moving)
        # Slow weights differ from head to head, not from step to step.
        params = [x.unsqueeze(1) for x in still[: self.still]]
        found = iter(stage.function.run(front, *time[:count], *params))
        step = Step(
            decay=None if stage.fades is None else _wide(next(found), front, part, stage.fades),
            writes=[self._write(found, front, *kind) for kind in stage.writes],
            queries=[_wide(next(found), front, part, len(part.columns)) for _ in stage.queries],
            across=[_wide(next(found), front, part, len(part.rows)) for _ in stage.across],
            offsets=[],
            across_offsets=[],
        )
        marks = dict(zip(self.names[count:], time[count:], strict=True))
        if "left_before" in marks:
            step = _apart(step, stage, still[-1], marks["left_before"], marks["left_after"])
        if "stays" in marks:
            step = _cut_off(step, stage, marks["stays"].unsqueeze(-1))
        if "inside" in marks or missing:
            step = _hold(step, _inside(marks.get("inside"), missing, front, time[0].device))
        return _chunks(step, stage)

    def _write(self, found: Iterator[Tensor], front: tuple[int, ...], erases: bool, given: Sequence[bool]) -> Write:
        parts = self.stage.parts
        columns = len(parts[0].columns)
        key = _wide(next(found), front, parts[0], columns)
        erase = _wide(next(found), front, parts[0], columns) if erases else None
        values = [
            _wide(next(found), front, part, len(part.rows))
            if is_given
            else key.new_zeros(()).expand(*key.shape[:-1], part.height)
            for part, is_given in zip(parts, given, strict=True)
        ]
        value = values[0] if len(parts) == 1 else torch.cat(values, -1)
        return Write(key, erase, pad(value, (0, self.extra)) if self.extra else value)


def _wide(x: Tensor, front: tuple[int, ...], part: Part, axes: int) -> Tensor:
    """A vector for every step, whose so many axes become one, with the groups on the axis of the heads."""
    x = x.flatten(-axes) if axes else x.unsqueeze(-1)
    groups = part.sizes(part.groups)
    x = x.expand(*front, *groups, x.shape[-1])
    return x.flatten(len(front), -2).movedim(-2, 3).flatten(2, 3) if groups else x


def _apart(step: Step, stage: Scanned, start: Tensor, before: Tensor, after: Tensor) -> Step:
    """For S - start * left in the place of S: see `Begun`."""

    def of_start(vector: Tensor) -> Tensor:
        return torch.einsum("bhrk,nbhck->nbhcr", start, vector)

    writes = [w if w.erase is None else w._replace(value=w.value - of_start(before * w.erase)) for w in step.writes]
    offsets = [of_start((after if a else before) * q) for q, a in zip(step.queries, stage.queries, strict=True)]
    crossed = [
        torch.einsum("bhrk,nbhcr->nbhck", start, p) * (after if a else before)
        for p, a in zip(step.across, stage.across, strict=True)
    ]
    return step._replace(writes=writes, offsets=offsets, across_offsets=crossed)


def _cut_off(step: Step, stage: Scanned, stays: Tensor) -> Step:
    """Forgets everything before a reset: there nothing is left, and nothing to erase or to read."""
    queries = [q if after else q * stays for q, after in zip(step.queries, stage.queries, strict=True)]
    across = [p if after else p * stays for p, after in zip(step.across, stage.across, strict=True)]
    like = step.writes[0].key
    decay = stays.to(like.dtype).expand(*like.shape[:-1], 1) if step.decay is None else step.decay * stays
    writes = [w if w.erase is None else w._replace(erase=w.erase * stays) for w in step.writes]
    return step._replace(decay=decay, writes=writes, queries=queries, across=across)


def _inside(inside: Tensor | None, missing: int, front: tuple[int, ...], device: torch.device) -> Tensor:
    """Which steps are neither padding nor there to fill up the last chunk, `[N, B or 1, 1, C, 1]`."""
    if inside is None:
        steps = front[0] * front[3]
        inside = (torch.arange(steps, device=device) < steps - missing).view(front[0], 1, 1, front[3])
    return inside.unsqueeze(-1)


def _hold(step: Step, inside: Tensor) -> Step:
    """Changes nothing where a sequence has ended: there nothing fades, and nothing is erased or written."""
    writes = [
        Write(
            w.key, w.erase if w.erase is None else torch.where(inside, w.erase, 0.0), torch.where(inside, w.value, 0.0)
        )
        for w in step.writes
    ]
    return step._replace(
        decay=step.decay if step.decay is None else torch.where(inside, step.decay, 1.0), writes=writes
    )


def _chunks(step: Step, stage: Scanned) -> Chunks:
    """Members and heads on one axis, and several vectors a step on one."""
    fades = fading(None if step.decay is None else step.decay.flatten(1, 2))
    erasing, rest = ([w for w in step.writes if (w.erase is not None) == does] for does in (True, False))
    kinds = [Writes(*(_stacked(parts) for parts in zip(*kind, strict=True))) for kind in (erasing, rest) if kind]
    of_rows = Across(_stacked(step.across), stage.across, _stacked(step.across_offsets)) if step.across else None
    return Chunks(fades, tuple(kinds), _stacked(step.queries), stage.queries, _stacked(step.offsets), of_rows)


def _stacked(vectors: Sequence[Any]) -> Any:
    """`[N, B, H, C, K]` each -> `[N, B H, C, n, K]`; None of none."""
    if not vectors or vectors[0] is None:
        return None
    return (vectors[0].unsqueeze(-2) if len(vectors) == 1 else torch.stack(list(vectors), -2)).flatten(1, 2)


def _left(stage: Scanned, problem: Problem, given: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
    """Products of all decays since the last reset, before and after every step, `[B, T, H G, 1 or K]`; 0 if there was
    none.

    before[t] = a[t] before[t-1] + b[t] is a chain of maps: every round joins those of twice as many steps.
    """
    assert problem.reset is not None
    like = problem.inputs[0]
    (B, T, H), part = problem.leading, stage.parts[0]
    decays = like.new_ones(()).expand(B, T, H * part.matrices, 1)
    if stage.fades is not None:
        decays = _wide(call(stage.function, problem, given)[0], (B, T, H), part, stage.fades)
    if problem.inside is not None:
        decays = only(problem.inside, decays, 1.0)
    began = problem.reset[:, :, None, None].expand(decays.shape)
    a, before = torch.where(began, 0.0, later(decays, 1)), began.to(like.dtype)
    joined = 1
    while joined < began.shape[1]:
        a, before = a * later(a, joined), before + a * later(before, joined)
        joined *= 2
    return before, decays * before


def matrix(stage: Scanned, state: Any) -> Tensor:
    """The states of a stage below each other, `[B, H G, R, K]` with G groups."""
    parts = [_rows(getattr(state, part.state), part) for part in stage.parts]
    return parts[0] if len(parts) == 1 else torch.cat(parts, -2)


def _rows(x: Tensor, part: Part) -> Tensor:
    B, H = x.shape[:2]
    x = x.permute(0, 1, *(2 + a for a in (*part.groups, *part.rows, *part.columns)))
    return x.reshape(B, H * part.matrices, part.height, part.width)


def states(stage: Scanned, S: Tensor) -> dict[str, Tensor]:
    """The states back from it."""
    rows = S.split([part.height for part in stage.parts], -2)
    return {part.state: _state(x, part) for x, part in zip(rows, stage.parts, strict=True)}


def _state(x: Tensor, part: Part) -> Tensor:
    order = (*part.groups, *part.rows, *part.columns)
    x = x.reshape(x.shape[0], x.shape[1] // part.matrices, *part.sizes(order))
    return x.permute(0, 1, *(2 + order.index(a) for a in range(len(order))))


def seen(stage: Scanned, read: Reads) -> dict[str, Tensor]:
    """By name, of what every vector reads of all parts."""
    found = {}
    if read.along is not None:
        rows = read.along.split([part.height for part in stage.parts], -1)
        for name, n, p, shape in stage.seen:
            found[name] = _shaped(rows[p].select(-2, n), stage.parts[p], stage.parts[p].rows, shape)
    if read.across is not None:
        for name, n, p, shape in stage.crossed:
            found[name] = _shaped(read.across.select(-2, n), stage.parts[p], stage.parts[p].columns, shape)
    return found


def _shaped(x: Tensor, part: Part, axes: tuple[int, ...], shape: Shape) -> Tensor:
    """Reads `[B, T, H G, R]`, whose last axis stands for axes of the state, as `[B, T, H, *shape]`."""
    order = (*part.groups, *axes)
    B, T, heads = x.shape[:3]
    x = x.reshape(B, T, heads // part.matrices, *part.sizes(order))
    return x.permute(0, 1, 2, *(3 + order.index(a) for a in sorted(order))).reshape(*x.shape[:3], *shape)
