"""The coefficients of a scan: those of the lowering, modified by resets and lengths."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from fastweights.backends.chunkwise.chunks import Across, ChunkedScan, Chunks, Reads, Writes, chunk_size
from fastweights.backends.chunkwise.decay import ColumnDecay, decay_of
from fastweights.backends.chunkwise.factors import COLUMNS, Columns, factors_of
from fastweights.backends.chunkwise.lowering import ScanStage, evaluate
from fastweights.backends.chunkwise.running_max import later
from fastweights.call.scan_call import FILL, ScanCall
from fastweights.compiler.affine.form import Part
from fastweights.compiler.ir.nodes import Shape


class PreparedScan(NamedTuple):
    """A scan, with its correction for resets to a state other than 0.

    Resets set S to `start` `[B, H, R, K]`. The scan then runs on S - start * left, where `left` is the product of the
    decays since the last reset, 0 if there was none. That difference is 0 after a reset, as chunks need it, and affine
    like S; what erases is given start * (left before the step). At the end, `left_over` = start * left is added to the
    last S.
    """

    builder: "CoefficientBuilder"
    time: Mapping[str, Tensor]
    """Tensors with a time axis, `[B, T, H, ...]`, by name. The inputs may have half precision."""
    fills: tuple[float, ...]
    constant: tuple[Tensor, ...]
    left_over: Tensor | None
    size: int
    numbers: int
    dtype: torch.dtype

    @property
    def scan(self) -> ChunkedScan:
        """The scan in the dtype of the computation."""
        time = tuple(x if x.dtype == torch.bool else x.to(self.dtype) for x in self.time.values())
        return ChunkedScan(self.builder, time, self.fills, self.constant, self.size, self.numbers)


def prepare_scan(stage: ScanStage, call: ScanCall, named: Mapping[str, Tensor], extra: int = 0) -> PreparedScan:
    """The scan of a stage, with `extra` rows of S to which nothing is written."""
    time = {name: named[name] for name in stage.function.per_step}
    constant = [named[name] for name in stage.function.constant]
    fills, left_over = dict.fromkeys(time, FILL), None
    marks: dict[str, tuple[Tensor, float]] = {}
    if call.valid is not None:
        marks["valid"] = call.valid[..., None], 0.0
    if call.tensors.reset is not None:
        marks["not_reset"] = ~call.tensors.reset[..., None], 1.0
    if call.tensors.reset is not None and not call.starts_at_zero:
        start, left = matrix(stage, call.tensors.initial_state), _decay_since_reset(stage, call, named)
        marks |= {f"left_{name}": (x, 0.0) for name, x in left._asdict().items() if x is not None}
        constant, left_over = [*constant, start], factors_of(stage.blocks).push(left.after[:, -1], start)
        if left.rows_after is not None:
            left_over = left_over * left.rows_after[:, -1].unsqueeze(-1)
    time |= {name: mark for name, (mark, _) in marks.items()}
    fills |= {name: fill for name, (_, fill) in marks.items()}
    part, rows = stage.parts[0], sum(part.height for part in stage.stacked) + extra
    builder = CoefficientBuilder(stage, tuple(time), len(stage.function.constant), extra)
    B, T, H = call.plan.leading
    numbers = B * H * part.matrices * len(stage.writes) * (stage.width + rows)
    size = chunk_size(T, stage.width)
    dtype = call.plan.compute_dtype
    return PreparedScan(builder, time, tuple(fills.values()), tuple(constant), left_over, size, numbers, dtype)


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
    row_decay: Tensor | None
    writes: list[StepWrite]
    queries: list[Tensor]
    across: list[Tensor]
    offsets: list[Tensor]
    across_offsets: list[Tensor]


class CoefficientBuilder:
    """Computes the coefficients of a stage for chunks, from the tensors `names` of the same steps."""

    def __init__(self, stage: ScanStage, names: tuple[str, ...], num_params: int, extra: int) -> None:
        self.stage, self.names, self.num_params, self.extra = stage, names, num_params, extra

    def __call__(self, time: Sequence[Tensor], constant: Sequence[Tensor], missing: int) -> Chunks:
        return _chunks(self.steps(time, constant, missing), self.stage)

    def steps(self, time: Sequence[Tensor], constant: Sequence[Tensor], missing: int) -> StepCoefficients:
        """The coefficients of all steps. The arguments are those of `chunks.Coefficients`."""
        stage, part, front = self.stage, self.stage.parts[0], tuple(time[0].shape[:4])
        columns, rows = stage.column_axes, len(part.rows)
        count = len(stage.function.per_step)
        # Slow weights differ from head to head, not from step to step.
        params = [x.unsqueeze(1) for x in constant[: self.num_params]]
        values = iter(stage.function.run(front, *time[:count], *params))
        step = StepCoefficients(
            decay=None if stage.decay_axes is None else _wide(next(values), front, part, stage.decay_axes),
            row_decay=_wide(next(values), front, part, rows) if stage.rows_decay else None,
            writes=[self._write(values, front, *kind) for kind in stage.writes],
            queries=[_wide(next(values), front, part, columns) for _ in stage.queries],
            across=[_wide(next(values), front, part, rows) for _ in stage.across],
            offsets=[],
            across_offsets=[],
        )
        marks = dict(zip(self.names[count:], time[count:], strict=True))
        if "left_before" in marks:
            left = DecaySinceReset(*(marks.get(f"left_{name}") for name in DecaySinceReset._fields))  # type: ignore[arg-type]
            step = _without_start(step, stage, constant[-1], left)
        if "not_reset" in marks:
            step = _with_resets(step, stage, marks["not_reset"].unsqueeze(-1))
        if "valid" in marks or missing:
            step = _with_padding(step, stage, _valid(marks.get("valid"), missing, front, time[0].device))
        return step

    def _write(
        self, values: Iterator[Tensor], front: tuple[int, ...], erases: bool, has_value: Sequence[bool]
    ) -> StepWrite:
        parts, columns = self.stage.stacked, self.stage.column_axes
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


class DecaySinceReset(NamedTuple):
    """Products of the decays since the last reset, before and after every step; 0 where there was none.

    `[B, T, H G, F]` for the columns with G groups, and `[B, T, H G, R]` for rows that have a decay of their own.
    """

    before: Tensor
    after: Tensor
    rows_before: Tensor | None
    rows_after: Tensor | None


def _without_start(step: StepCoefficients, stage: ScanStage, start: Tensor, left: DecaySinceReset) -> StepCoefficients:
    """The coefficients of S - start * left in place of S: see `PreparedScan`."""
    factors = factors_of(stage.blocks)

    def along(vector: Tensor, is_after: bool) -> Tensor:
        of_columns, of_rows = (left.after, left.rows_after) if is_after else (left.before, left.rows_before)
        read = torch.einsum("bhrk,nbhck->nbhcr", start, _pulled(factors, of_columns, vector))
        return read if of_rows is None else read * of_rows

    def across(vector: Tensor, is_after: bool) -> Tensor:
        of_columns, of_rows = (left.after, left.rows_after) if is_after else (left.before, left.rows_before)
        vector = vector if of_rows is None else vector * of_rows
        read = torch.einsum("bhrk,nbhcr->nbhck", start, vector)
        return factors.push(of_columns, read.unsqueeze(-2)).squeeze(-2)

    writes = [w if w.erase is None else w._replace(value=w.value - along(w.erase, False)) for w in step.writes]
    offsets = [along(q, is_after) for q, is_after in zip(step.queries, stage.queries, strict=True)]
    crossed = [across(p, is_after) for p, is_after in zip(step.across, stage.across, strict=True)]
    return step._replace(writes=writes, offsets=offsets, across_offsets=crossed)


def _pulled(factors: Columns, factor: Tensor, vector: Tensor) -> Tensor:
    return factors.pull(factor, vector.unsqueeze(-2)).squeeze(-2)


def _with_resets(step: StepCoefficients, stage: ScanStage, not_reset: Tensor) -> StepCoefficients:
    """The coefficients with resets: nothing before a reset is kept, erased or read."""
    queries = [q if after else q * not_reset for q, after in zip(step.queries, stage.queries, strict=True)]
    across = [p if after else p * not_reset for p, after in zip(step.across, stage.across, strict=True)]
    like = step.writes[0].key
    decay = _no_decay(stage, like) if step.decay is None else step.decay
    writes = [w if w.erase is None else w._replace(erase=w.erase * not_reset) for w in step.writes]
    return step._replace(decay=decay * not_reset, writes=writes, queries=queries, across=across)


def _no_decay(stage: ScanStage, like: Tensor) -> Tensor:
    """The factors of steps that do not decay, `[..., F]`, for vectors `[..., K]` of the same steps."""
    return factors_of(stage.blocks).one(like.new_ones(()).expand(*like.shape[:-1], stage.blocks**2))


def _valid(valid: Tensor | None, missing: int, front: tuple[int, ...], device: torch.device) -> Tensor:
    """Marks the steps that neither are padding nor fill up the last chunk, `[N, B or 1, 1, C, 1]`."""
    if valid is None:
        steps = front[0] * front[3]
        valid = (torch.arange(steps, device=device) < steps - missing).view(front[0], 1, 1, front[3])
    return valid.unsqueeze(-1)


def _with_padding(step: StepCoefficients, stage: ScanStage, valid: Tensor) -> StepCoefficients:
    """The coefficients with padding, which neither decays, erases nor writes."""
    writes = [
        StepWrite(
            w.key, w.erase if w.erase is None else torch.where(valid, w.erase, 0.0), torch.where(valid, w.value, 0.0)
        )
        for w in step.writes
    ]
    factors, decay, row_decay = factors_of(stage.blocks), step.decay, step.row_decay
    decay = None if decay is None else torch.where(valid, decay, _one(factors, decay))
    row_decay = None if row_decay is None else torch.where(valid, row_decay, 1.0)
    return step._replace(decay=decay, row_decay=row_decay, writes=writes)


def _one(factors: Columns, decay: Tensor) -> Tensor | float:
    return 1.0 if factors is COLUMNS else factors.one(decay)


def _chunks(step: StepCoefficients, stage: ScanStage) -> Chunks:
    """The chunks, with members and heads on one axis and the vectors of a step on another."""
    factors, rows = factors_of(stage.blocks), None
    decay = decay_of(None if step.decay is None else step.decay.flatten(1, 2), factors)
    if step.row_decay is not None:
        by_column = step.decay if step.decay is not None else _no_decay(stage, step.row_decay)
        decay = ColumnDecay(by_column.flatten(1, 2), factors)
        rows = ColumnDecay(step.row_decay.flatten(1, 2), factors)
    erasing, rest = ([w for w in step.writes if (w.erase is not None) == does] for does in (True, False))
    kinds = [Writes(*(_stacked(parts) for parts in zip(*kind, strict=True))) for kind in (erasing, rest) if kind]
    of_rows = Across(_stacked(step.across), stage.across, _stacked(step.across_offsets)) if step.across else None
    queries, offsets = _stacked(step.queries), _stacked(step.offsets)
    return Chunks(decay, tuple(kinds), queries, stage.queries, offsets, of_rows, factors, rows)


def _stacked(vectors: Sequence[Any]) -> Any:
    """n vectors `[N, B, H, C, K]` -> `[N, B H, C, n, K]`; None if there are none."""
    if not vectors or vectors[0] is None:
        return None
    return (vectors[0].unsqueeze(-2) if len(vectors) == 1 else torch.stack(list(vectors), -2)).flatten(1, 2)


def _decay_since_reset(stage: ScanStage, call: ScanCall, named: Mapping[str, Tensor]) -> DecaySinceReset:
    """The products of all decays since the last reset."""
    leading, part = call.plan.leading, stage.parts[0]
    values = list(evaluate(stage.function, call, named)) if stage.decay_axes is not None or stage.rows_decay else []
    like = call.inputs[0].new_ones(()).expand(*leading[:2], leading[2] * part.matrices, 1)
    decay = _no_decay(stage, like)
    if stage.decay_axes is not None:
        decay = _wide(values.pop(0), leading, part, stage.decay_axes)
    rows = _wide(values[0], leading, part, len(part.rows)) if stage.rows_decay else None
    of_rows = (None, None) if rows is None else _products_since_reset(rows, COLUMNS, call)
    before, after = _products_since_reset(decay, factors_of(stage.blocks), call)
    return DecaySinceReset(before, after, *of_rows)


def _products_since_reset(decay: Tensor, factors: Columns, call: ScanCall) -> tuple[Tensor, Tensor]:
    """The products of factors since the last reset, before and after every step; 0 without one.

    before[t] = a[t] before[t-1] + b[t] is a chain of maps. Every round joins the maps of twice as many steps.
    """
    assert call.tensors.reset is not None
    one = factors.one(decay)
    if call.valid is not None:
        decay = torch.where(call.valid[:, :, None, None], decay, one)
    began = call.tensors.reset[:, :, None, None].expand(decay.shape)
    a, before = torch.where(began, 0.0, later(decay, 1)), torch.where(began, one, 0.0)
    joined = 1
    while joined < began.shape[1]:
        a, before = factors.joined(a, later(a, joined)), before + factors.joined(a, later(before, joined))
        joined *= 2
    return before, factors.joined(decay, before)


def matrix(stage: ScanStage, state: Mapping[str, Tensor]) -> Tensor:
    """The states of a stage as one matrix, `[B, H G, R, K]` with G groups."""
    parts = [_rows(state[part.state], part) for part in stage.parts]
    return parts[0] if len(parts) == 1 else torch.cat(parts, -1 if stage.is_coupled else -2)


def _rows(x: Tensor, part: Part) -> Tensor:
    B, H = x.shape[:2]
    x = x.permute(0, 1, *(2 + a for a in (*part.groups, *part.rows, *part.columns)))
    return x.reshape(B, H * part.matrices, part.height, part.width)


def states(stage: ScanStage, S: Tensor) -> dict[str, Tensor]:
    """The states of a stage by name, from its matrix."""
    sizes = [part.width if stage.is_coupled else part.height for part in stage.parts]
    parts = S.split(sizes, -1 if stage.is_coupled else -2)
    return {part.state: _state(x, part) for x, part in zip(parts, stage.parts, strict=True)}


def _state(x: Tensor, part: Part) -> Tensor:
    order = (*part.groups, *part.rows, *part.columns)
    x = x.reshape(x.shape[0], x.shape[1] // part.matrices, *part.sizes(order))
    return x.permute(0, 1, *(2 + order.index(a) for a in range(len(order))))


def values_read(stage: ScanStage, read: Reads) -> dict[str, Tensor]:
    """The values that the cell reads from the states of a stage, by name."""
    reads = {}
    if read.along is not None:
        rows = _of_parts(read.along, [part.height for part in stage.stacked])
        for name, n, p, shape in stage.along_reads:
            of_part = rows[n][0 if stage.is_coupled else p]
            reads[name] = _shaped(of_part, stage.parts[p], stage.parts[p].rows, shape)
    if read.across is not None:
        columns = _of_parts(read.across, [stage.width // stage.blocks] * stage.blocks)
        for name, n, p, shape in stage.across_reads:
            of_part = columns[n][p if stage.is_coupled else 0]
            reads[name] = _shaped(of_part, stage.parts[p], stage.parts[p].columns, shape)
    return reads


def _of_parts(reads: Tensor, sizes: Sequence[int]) -> list[Sequence[Tensor]]:
    """The parts of every read of `[..., n, R]`. The gradient of a single one is not copied."""
    each = reads.unbind(-2) if reads.shape[-2] > 1 else [reads.squeeze(-2)]
    return [x.split(sizes, -1) if len(sizes) > 1 else [x] for x in each]


def _shaped(x: Tensor, part: Part, axes: tuple[int, ...], shape: Shape) -> Tensor:
    """Reads `[B, T, H G, R]`, whose last axis joins axes of the state, as `[B, T, H, *shape]`."""
    order = (*part.groups, *axes)
    B, T, num_heads = x.shape[:3]
    x = x.reshape(B, T, num_heads // part.matrices, *part.sizes(order))
    return x.permute(0, 1, 2, *(3 + order.index(a) for a in sorted(order))).reshape(*x.shape[:3], *shape)
