"""The coefficients of a scan: those of the lowering, modified by resets and lengths."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from fastweights.backends.chunkwise.chunks import Across, ChunkedScan, Chunks, Reads, Writes, chunk_size
from fastweights.backends.chunkwise.decay import decay_of
from fastweights.backends.chunkwise.lowering import ScanStage, evaluate
from fastweights.backends.chunkwise.running_max import later
from fastweights.call.scan_call import FILL, ScanCall
from fastweights.compiler.affine.form import Part
from fastweights.compiler.ir.nodes import Shape
from fastweights.core.padding import only


class PreparedScan(NamedTuple):
    """A scan, with its correction for resets to a state other than 0.

    Resets set S to `start` `[B, H, R, K]`. The scan then runs on S - start * left, where `left` is the product of the
    decays since the last reset, 0 if there was none. That difference is 0 after a reset, as chunks need it, and affine
    like S; what erases is given start * (left before the step). At the end, start * left is added to the last S, with
    `left` `[B, H, 1]` or `[B, H, K]`.
    """

    scan: ChunkedScan
    start: Tensor | None
    left: Tensor | None


def prepare_scan(stage: ScanStage, call: ScanCall, named: Mapping[str, Tensor], extra: int = 0) -> PreparedScan:
    """The scan of a stage, with `extra` rows of S to which nothing is written."""
    time = {name: named[name] for name in stage.function.moving}
    still = [named[name] for name in stage.function.still]
    fills, start, left = dict.fromkeys(time, FILL), None, None
    marks: dict[str, tuple[Tensor, float]] = {}
    if call.inside is not None:
        marks["inside"] = call.inside[..., None], 0.0
    if call.tensors.reset is not None:
        marks["stays"] = ~call.tensors.reset[..., None], 1.0
    if call.tensors.reset is not None and not call.starts_at_zero:
        start = matrix(stage, call.tensors.initial_state)
        before, after = _left(stage, call, named)
        marks |= {"left_before": (before, 0.0), "left_after": (after, 0.0)}
        left, still = after[:, -1], [*still, start]
    time |= {name: mark for name, (mark, _) in marks.items()}
    fills |= {name: fill for name, (_, fill) in marks.items()}
    part, rows = stage.parts[0], sum(part.height for part in stage.parts) + extra
    builder = CoefficientBuilder(stage, tuple(time), len(stage.function.still), extra)
    B, T, H = call.plan.leading
    numbers = B * H * part.matrices * len(stage.writes) * (part.width + rows)
    size = chunk_size(T, part.width)
    scan = ChunkedScan(builder, tuple(time.values()), tuple(fills.values()), tuple(still), size, numbers)
    return PreparedScan(scan, start, left)


class StepWrite(NamedTuple):
    """One write of a step: u key^T with u = value - S erase."""

    key: Tensor
    erase: Tensor | None
    value: Tensor


class StepCoefficients(NamedTuple):
    """The coefficients of all steps, `[N, B, H G, C, ...]` with G groups.

    `offsets` are added to what the queries read, and `across_offsets` to what the vectors over the rows read.
    """

    decay: Tensor | None
    writes: list[StepWrite]
    queries: list[Tensor]
    across: list[Tensor]
    offsets: list[Tensor]
    across_offsets: list[Tensor]


class CoefficientBuilder:
    """Computes the coefficients of a stage for chunks, from the tensors `names` of the same steps."""

    def __init__(self, stage: ScanStage, names: tuple[str, ...], still: int, extra: int) -> None:
        self.stage, self.names, self.still, self.extra = stage, names, still, extra

    def __call__(self, time: Sequence[Tensor], still: Sequence[Tensor], missing: int) -> Chunks:
        stage, part, front = self.stage, self.stage.parts[0], tuple(time[0].shape[:4])
        count = len(stage.function.moving)
        # Slow weights differ from head to head, not from step to step.
        params = [x.unsqueeze(1) for x in still[: self.still]]
        values = iter(stage.function.run(front, *time[:count], *params))
        step = StepCoefficients(
            decay=None if stage.decay_axes is None else _wide(next(values), front, part, stage.decay_axes),
            writes=[self._write(values, front, *kind) for kind in stage.writes],
            queries=[_wide(next(values), front, part, len(part.columns)) for _ in stage.queries],
            across=[_wide(next(values), front, part, len(part.rows)) for _ in stage.across],
            offsets=[],
            across_offsets=[],
        )
        marks = dict(zip(self.names[count:], time[count:], strict=True))
        if "left_before" in marks:
            step = _without_start(step, stage, still[-1], marks["left_before"], marks["left_after"])
        if "stays" in marks:
            step = _with_resets(step, stage, marks["stays"].unsqueeze(-1))
        if "inside" in marks or missing:
            step = _with_padding(step, _inside(marks.get("inside"), missing, front, time[0].device))
        return _chunks(step, stage)

    def _write(
        self, values: Iterator[Tensor], front: tuple[int, ...], erases: bool, has_value: Sequence[bool]
    ) -> StepWrite:
        parts = self.stage.parts
        columns = len(parts[0].columns)
        key = _wide(next(values), front, parts[0], columns)
        erase = _wide(next(values), front, parts[0], columns) if erases else None
        rows = [
            _wide(next(values), front, part, len(part.rows))
            if has
            else key.new_zeros(()).expand(*key.shape[:-1], part.height)
            for part, has in zip(parts, has_value, strict=True)
        ]
        value = rows[0] if len(parts) == 1 else torch.cat(rows, -1)
        return StepWrite(key, erase, pad(value, (0, self.extra)) if self.extra else value)


def _wide(x: Tensor, front: tuple[int, ...], part: Part, axes: int) -> Tensor:
    """A vector per step: its last axes become one, and its groups join the axis of the heads."""
    x = x.flatten(-axes) if axes else x.unsqueeze(-1)
    groups = part.sizes(part.groups)
    x = x.expand(*front, *groups, x.shape[-1])
    return x.flatten(len(front), -2).movedim(-2, 3).flatten(2, 3) if groups else x


def _without_start(
    step: StepCoefficients, stage: ScanStage, start: Tensor, before: Tensor, after: Tensor
) -> StepCoefficients:
    """The coefficients of S - start * left in place of S: see `PreparedScan`."""

    def of_start(vector: Tensor) -> Tensor:
        return torch.einsum("bhrk,nbhck->nbhcr", start, vector)

    writes = [w if w.erase is None else w._replace(value=w.value - of_start(before * w.erase)) for w in step.writes]
    offsets = [
        of_start((after if is_after else before) * q) for q, is_after in zip(step.queries, stage.queries, strict=True)
    ]
    crossed = [
        torch.einsum("bhrk,nbhcr->nbhck", start, p) * (after if is_after else before)
        for p, is_after in zip(step.across, stage.across, strict=True)
    ]
    return step._replace(writes=writes, offsets=offsets, across_offsets=crossed)


def _with_resets(step: StepCoefficients, stage: ScanStage, stays: Tensor) -> StepCoefficients:
    """The coefficients with resets: nothing before a reset is kept, erased or read."""
    queries = [q if after else q * stays for q, after in zip(step.queries, stage.queries, strict=True)]
    across = [p if after else p * stays for p, after in zip(step.across, stage.across, strict=True)]
    like = step.writes[0].key
    decay = stays.to(like.dtype).expand(*like.shape[:-1], 1) if step.decay is None else step.decay * stays
    writes = [w if w.erase is None else w._replace(erase=w.erase * stays) for w in step.writes]
    return step._replace(decay=decay, writes=writes, queries=queries, across=across)


def _inside(inside: Tensor | None, missing: int, front: tuple[int, ...], device: torch.device) -> Tensor:
    """Marks the steps that neither are padding nor fill up the last chunk, `[N, B or 1, 1, C, 1]`."""
    if inside is None:
        steps = front[0] * front[3]
        inside = (torch.arange(steps, device=device) < steps - missing).view(front[0], 1, 1, front[3])
    return inside.unsqueeze(-1)


def _with_padding(step: StepCoefficients, inside: Tensor) -> StepCoefficients:
    """The coefficients with padding, which neither decays, erases nor writes."""
    writes = [
        StepWrite(
            w.key, w.erase if w.erase is None else torch.where(inside, w.erase, 0.0), torch.where(inside, w.value, 0.0)
        )
        for w in step.writes
    ]
    return step._replace(
        decay=step.decay if step.decay is None else torch.where(inside, step.decay, 1.0), writes=writes
    )


def _chunks(step: StepCoefficients, stage: ScanStage) -> Chunks:
    """The chunks, with members and heads on one axis and the vectors of a step on another."""
    decay = decay_of(None if step.decay is None else step.decay.flatten(1, 2))
    erasing, rest = ([w for w in step.writes if (w.erase is not None) == does] for does in (True, False))
    kinds = [Writes(*(_stacked(parts) for parts in zip(*kind, strict=True))) for kind in (erasing, rest) if kind]
    of_rows = Across(_stacked(step.across), stage.across, _stacked(step.across_offsets)) if step.across else None
    return Chunks(decay, tuple(kinds), _stacked(step.queries), stage.queries, _stacked(step.offsets), of_rows)


def _stacked(vectors: Sequence[Any]) -> Any:
    """n vectors `[N, B, H, C, K]` -> `[N, B H, C, n, K]`; None if there are none."""
    if not vectors or vectors[0] is None:
        return None
    return (vectors[0].unsqueeze(-2) if len(vectors) == 1 else torch.stack(list(vectors), -2)).flatten(1, 2)


def _left(stage: ScanStage, call: ScanCall, named: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
    """Products of all decays since the last reset, before and after every step, `[B, T, H G, 1 or K]`; 0 without one.

    before[t] = a[t] before[t-1] + b[t] is a chain of maps. Every round joins the maps of twice as many steps.
    """
    assert call.tensors.reset is not None
    like = call.tensors.inputs[0]
    (B, T, H), part = call.plan.leading, stage.parts[0]
    decays = like.new_ones(()).expand(B, T, H * part.matrices, 1)
    if stage.decay_axes is not None:
        decays = _wide(evaluate(stage.function, call, named)[0], (B, T, H), part, stage.decay_axes)
    if call.inside is not None:
        decays = only(call.inside, decays, 1.0)
    began = call.tensors.reset[:, :, None, None].expand(decays.shape)
    a, before = torch.where(began, 0.0, later(decays, 1)), began.to(like.dtype)
    joined = 1
    while joined < began.shape[1]:
        a, before = a * later(a, joined), before + a * later(before, joined)
        joined *= 2
    return before, decays * before


def matrix(stage: ScanStage, state: Any) -> Tensor:
    """The states of a stage as rows of one matrix, `[B, H G, R, K]` with G groups."""
    parts = [_rows(getattr(state, part.state), part) for part in stage.parts]
    return parts[0] if len(parts) == 1 else torch.cat(parts, -2)


def _rows(x: Tensor, part: Part) -> Tensor:
    B, H = x.shape[:2]
    x = x.permute(0, 1, *(2 + a for a in (*part.groups, *part.rows, *part.columns)))
    return x.reshape(B, H * part.matrices, part.height, part.width)


def states(stage: ScanStage, S: Tensor) -> dict[str, Tensor]:
    """The states of a stage by name, from the rows of its matrix."""
    rows = S.split([part.height for part in stage.parts], -2)
    return {part.state: _state(x, part) for x, part in zip(rows, stage.parts, strict=True)}


def _state(x: Tensor, part: Part) -> Tensor:
    order = (*part.groups, *part.rows, *part.columns)
    x = x.reshape(x.shape[0], x.shape[1] // part.matrices, *part.sizes(order))
    return x.permute(0, 1, *(2 + order.index(a) for a in range(len(order))))


def seen(stage: ScanStage, read: Reads) -> dict[str, Tensor]:
    """The values that the cell reads from the states of a stage, by name."""
    reads = {}
    if read.along is not None:
        rows = read.along.split([part.height for part in stage.parts], -1)
        for name, n, p, shape in stage.seen:
            reads[name] = _shaped(rows[p].select(-2, n), stage.parts[p], stage.parts[p].rows, shape)
    if read.across is not None:
        for name, n, p, shape in stage.crossed:
            reads[name] = _shaped(read.across.select(-2, n), stage.parts[p], stage.parts[p].columns, shape)
    return reads


def _shaped(x: Tensor, part: Part, axes: tuple[int, ...], shape: Shape) -> Tensor:
    """Reads `[B, T, H G, R]`, whose last axis joins axes of the state, as `[B, T, H, *shape]`."""
    order = (*part.groups, *axes)
    B, T, num_heads = x.shape[:3]
    x = x.reshape(B, T, num_heads // part.matrices, *part.sizes(order))
    return x.permute(0, 1, 2, *(3 + order.index(a) for a in sorted(order))).reshape(*x.shape[:3], *shape)
