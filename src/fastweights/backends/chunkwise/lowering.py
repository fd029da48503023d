"""The chunkwise form of a cell: functions that compute the coefficients of the scans, and the output after them."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from fastweights.backends._specialisation import constant_sizes, specialisation_of
from fastweights.backends.chunkwise.fused_scan import IMPLEMENTATIONS
from fastweights.backends.chunkwise.loop_cell import loop_cell
from fastweights.call.scan_call import ScanCall
from fastweights.cell import Cell
from fastweights.compiler.affine.batched import batched
from fastweights.compiler.affine.form import (
    AffineForm,
    Delay,
    Linear,
    Part,
    Read,
    Recurrent,
    RecurrentPart,
    RunningMax,
    Stage,
    StateSplit,
    Write,
)
from fastweights.compiler.affine.frontier import frontier
from fastweights.compiler.ir.nodes import Constant, Load, Node, Shape, Value, ancestors, identity
from fastweights.compiler.specialise.specialisations import affine_of
from fastweights.compiler.targets.target import TARGETS
from fastweights.core.traced_constant import traced_constant


class StageFunction(NamedTuple):
    """Values of the step as a function of tensors by name; `per_step` ones change over time, `constant` ones do not."""

    run: Callable[..., tuple[Tensor, ...]]
    """Takes the leading shape, and the tensors in the order of the names."""
    per_step: tuple[str, ...]
    constant: tuple[str, ...]


class ScanStage(NamedTuple):
    """A stage that scans states which are one matrix: the function of its coefficients, and their kinds.

    The parts are stacked along the rows or, if they are coupled, side by side. `decay_axes` is the number of axes of
    the decay, groups aside; None without a decay. `rows_decay` is whether the rows have one too. `writes` has an entry
    per write: whether it erases, and which parts it gives values to. `queries` has an entry per vector that reads along
    the columns, and `across` per vector that reads across the rows: whether it reads after the step. `along_reads` and
    `across_reads` have an entry per read: its name, the index of its vector, the part, and the shape of the result.
    `inputs` names the inputs of the cell that are the first query, key and value themselves; empty where none is.
    """

    parts: tuple[Part, ...]
    function: StageFunction
    decay_axes: int | None
    writes: tuple[tuple[bool, tuple[bool, ...]], ...]
    queries: tuple[bool, ...]
    along_reads: tuple[tuple[str, int, int, Shape], ...]
    across: tuple[bool, ...]
    across_reads: tuple[tuple[str, int, int, Shape], ...]
    rows_decay: bool
    is_coupled: bool
    inputs: tuple[str, str, str]

    @property
    def blocks(self) -> int:
        """Number of parts side by side."""
        return len(self.parts) if self.is_coupled else 1

    @property
    def stacked(self) -> tuple[Part, ...]:
        """The parts along the rows. The first of coupled parts stands for all."""
        return self.parts[: 1 if self.is_coupled else None]

    @property
    def width(self) -> int:
        """Number of columns."""
        return self.parts[0].width * self.blocks

    @property
    def column_axes(self) -> int:
        """Number of axes of a vector over the columns."""
        return len(self.parts[0].columns) + self.is_coupled


class RunningMaxStage(NamedTuple):
    """A stage of a scalar that is a running maximum: the function of `plus` and `floor`, and the names of the scalar,
    of its value before the step, and of its value after it."""

    state: str
    function: StageFunction
    before: str
    after: str


class DelayStage(NamedTuple):
    """A stage of a state that only delays values: the function of the new state, which may read the one before, the
    number of steps after which nothing is left of it, and the names of the state, before the step, and after it."""

    state: str
    function: StageFunction
    steps: int
    before: str
    after: str


class RecurrentStage(NamedTuple):
    """A stage of states that are computed step by step: the cell of the loop, whose states, inputs and params have the
    names of the stages, and the names and shapes of what its output has for other stages and the output of the call."""

    cell: Cell
    outputs: tuple[tuple[str, Shape], ...]


LoweredStage = ScanStage | RunningMaxStage | DelayStage | RecurrentStage


class ChunkwiseLowering(NamedTuple):
    """All stages of a cell, then its output; `kind` is the kind whose cost was measured, empty if none was.

    The stages know the states of `splits` as several pieces.
    """

    stages: tuple[LoweredStage, ...]
    output: StageFunction
    kind: str
    description: str
    splits: tuple[StateSplit, ...]


def lowering_of(call: ScanCall) -> ChunkwiseLowering | str:
    """The lowering of the cell of a call, or why there is none."""
    if torch.compiler.is_compiling():
        return _traced_lowering(call.cell.key, constant_sizes(call.plan.sizes), call.plan.compute_dtype)
    specialisation, _ = specialisation_of(call)
    return _lowered(specialisation.affine())


def lowering_for(key: str, sizes: tuple[tuple[str, int], ...], dtype: torch.dtype) -> ChunkwiseLowering | str:
    """The lowering of the cell of a key, or why there is none."""
    return _lowered(affine_of(key, sizes, dtype))


_traced_lowering = traced_constant(lowering_for)
_BY_FORM: dict[AffineForm, ChunkwiseLowering] = {}


def _lowered(form: AffineForm | str) -> ChunkwiseLowering | str:
    if isinstance(form, str):
        return form
    if form not in _BY_FORM:
        _BY_FORM[form] = Lowerer(form).lowering()
    return _BY_FORM[form]


class Lowerer:
    """Names the tensors of an affine form, and turns its values into functions of them."""

    def __init__(self, form: AffineForm) -> None:
        self.form = form
        inputs, params = form.placeholders
        self.per_step: dict[Node, str] = {d: f"in_{name}" for name, d in inputs.items()}
        self.constant: dict[Node, str] = {d: f"param_{name}" for name, d in params.items()}
        for stage in form.stages:
            if isinstance(stage, Linear):
                self.per_step |= {read.input: f"seen_{len(self.per_step) + n}" for n, read in enumerate(stage.reads)}
            for known in _known_states(stage):
                self.per_step |= {known.before: f"before_{known.state}", known.after: f"after_{known.state}"}

    def lowering(self) -> ChunkwiseLowering:
        """The lowering of the form."""
        stages = tuple(map(self._stage, self.form.stages))
        return ChunkwiseLowering(stages, self._function([self.form.y]), self._kind(), str(self.form), self.form.splits)

    def _kind(self) -> str:
        """The kind whose cost was measured; empty if none was."""
        stages = [s for s in self.form.stages if isinstance(s, Linear)]
        if any(s.across or s.row_decay is not None or len(s.parts[0].columns) > 1 for s in stages):
            return ""
        if any(isinstance(s, RunningMax) for s in self.form.stages):
            return ""
        recurrent = [s for s in self.form.stages if isinstance(s, Recurrent)]
        if recurrent:
            is_measured = all(s.parts[0].value.shape for s in recurrent) and not any(s.parts[0].groups for s in stages)
            return "recurrent" if is_measured else ""
        if any(s.is_coupled and _erases(s) for s in stages):
            return ""
        kinds = {kind for s in stages for kind, holds in _kinds(s).items() if holds}
        return next((kind for kind in ("coupled", "columns", "memories", "other") if kind in kinds), "sums")

    def _function(self, values: Sequence[Value]) -> StageFunction:
        used = ancestors(values, self.per_step)
        per_step = {d: name for d, name in self.per_step.items() if d in used} or dict(list(self.per_step.items())[:1])
        constant = {d: name for d, name in self.constant.items() if d in used}
        return StageFunction(
            batched(values, [*per_step, *constant]).run, tuple(per_step.values()), tuple(constant.values())
        )

    def _stage(self, stage: Stage) -> LoweredStage:
        if isinstance(stage, Linear):
            return self._scan(stage)
        if isinstance(stage, Recurrent):
            return self._recurrent(stage)
        function, before, after = self._function(stage.values), self.per_step[stage.before], self.per_step[stage.after]
        if isinstance(stage, RunningMax):
            return RunningMaxStage(stage.state, function, before, after)
        return DelayStage(stage.state, function, stage.steps, before, after)

    def _recurrent(self, stage: Recurrent) -> RecurrentStage:
        rest = self.form.stages[self.form.stages.index(stage) + 1 :]
        values = [*(value for other in rest for value in other.values), self.form.y]
        later = {d for other in rest for d in other.read_inputs}
        known = {*self.per_step, *self.constant} - later
        outputs = frontier(values, stage.read_inputs, known - stage.read_inputs)
        cell = loop_cell(stage, outputs, self.per_step, self.constant)
        # From here on, functions read the outputs and not what these are computed from.
        self.per_step |= {d: f"loop_{len(self.per_step) + n}" for n, d in enumerate(outputs)}
        return RecurrentStage(cell, tuple((self.per_step[d], d.shape) for d in outputs))

    def _scan(self, stage: Linear) -> ScanStage:
        writes = sorted(stage.writes, key=lambda w: w.erase is None) or [_zero_write(stage)]
        along = [read for read in stage.reads if read not in stage.across]
        (vectors, places), (over_rows, at) = _vectors(along), _vectors(stage.across)
        names = [part.state for part in stage.parts]
        along_reads, across_reads = (
            [
                (self.per_step[r.input], n, names.index(r.state), r.input.shape)
                for r, n in zip(reads, placed, strict=True)
            ]
            for reads, placed in ((along, places), (stage.across, at))
        )
        values = [stage.decay, stage.row_decay, *(v for w in writes for v in (w.key, w.erase, *w.values))]
        values += [vector for vector, _ in (*vectors, *over_rows)]
        kinds = tuple((w.erase is not None, tuple(v is not None for v in w.values)) for w in writes)
        function = self._function([v for v in values if v is not None])
        decay_axes = None if stage.decay is None else len(stage.decay.shape) - len(stage.parts[0].groups)
        queries, across = (tuple(is_after for _, is_after in kind) for kind in (vectors, over_rows))
        all_reads = (queries, tuple(along_reads), across, tuple(across_reads))
        rows_decay = stage.row_decay is not None
        query = vectors[0][0] if vectors else None
        inputs = self._input(query), self._input(writes[0].key), self._input(writes[0].values[0])
        return ScanStage(stage.parts, function, decay_axes, kinds, *all_reads, rows_decay, stage.is_coupled, inputs)

    def _input(self, value: Value | None) -> str:
        """The name of the input that a value is, axis by axis; empty if it is none."""
        if value is None or not isinstance(value.expression, Load):
            return ""
        node, index = value.expression.node, value.expression.index
        is_whole = node.shape == value.shape and index == identity(value.shape)
        return self.per_step.get(node, "") if is_whole else ""


def _known_states(stage: Stage) -> Sequence[RunningMax | Delay | RecurrentPart]:
    """The states of a stage that inputs replace before and after the step."""
    match stage:
        case RunningMax() | Delay():
            return [stage]
        case Recurrent(parts):
            return parts
    return []


def _kinds(stage: Linear) -> Mapping[str, bool]:
    """The kinds of memories that a stage belongs to, by name."""
    return {
        "coupled": stage.is_coupled,
        "columns": stage.decays_by_column,
        "memories": bool(stage.parts[0].groups),
        "other": stage.decay is not None or _erases(stage),
    }


def _erases(stage: Linear) -> bool:
    return any(write.erase is not None for write in stage.writes)


def _zero_write(stage: Linear) -> Write:
    """A write of 0, since a scan has at least one."""
    part, blocks = stage.parts[0], [len(stage.parts)] * stage.is_coupled
    shape = (*part.sizes(part.groups), *blocks, *part.sizes(part.columns))
    return Write(Value(shape, Constant(0.0)), None, (None,))


def _vectors(reads: Sequence[Read]) -> tuple[list[tuple[Value, bool]], list[int]]:
    """The distinct vectors that read, with whether they read after the step, and the index of the vector per read."""
    vectors = list(dict.fromkeys((read.vector, read.after) for read in reads))
    return vectors, [vectors.index((read.vector, read.after)) for read in reads]


def shared_inputs(lowering: ChunkwiseLowering) -> set[str]:
    """The inputs that several stages read, by name. Delays and the output of the cell do not count."""
    readers: Counter[str] = Counter()
    for stage in lowering.stages:
        match stage:
            case RecurrentStage():
                readers.update([*stage.cell.slots["Inputs"]])
            case ScanStage() | RunningMaxStage():
                readers.update(stage.function.per_step)
    return {name for name, count in readers.items() if count > 1}


def named_tensors(call: ScanCall, lowering: ChunkwiseLowering) -> dict[str, Tensor]:
    """The inputs and slow weights of a call by name, captured tensors among them.

    The inputs have half precision if the device has kernels that read it. Inputs that several stages read are in the
    dtype of the computation: autograd adds up their gradients, which would be rounded before and may cancel.
    """
    reads_half = TARGETS.get(call.plan.device.type) in IMPLEMENTATIONS
    inputs = call.finite(call.tensors.inputs if reads_half else call.inputs)
    by_name = {f"in_{name}": x for name, x in zip(inputs._fields, inputs, strict=True)}
    if reads_half and call.plan.dtype != call.plan.compute_dtype:
        shared = shared_inputs(lowering)
        by_name |= {name: x.to(call.plan.compute_dtype) for name, x in by_name.items() if name in shared}
    names, params = list(call.cell.slots.get("Params", {})), list(call.tensors.params or ())
    if not torch.compiler.is_compiling():
        specialisation, captured = specialisation_of(call)
        names, H = list(specialisation.cell.slots.get("Params", {})), call.plan.leading[2]
        params += [x.to(call.plan.compute_dtype).expand(H, *x.shape) for x in captured]
    return by_name | {f"param_{name}": x for name, x in zip(names, params, strict=True)}


def evaluate(function: StageFunction, call: ScanCall, named: Mapping[str, Tensor]) -> tuple[Tensor, ...]:
    """The values of a function for all steps, `[B, T, H, ...]`."""
    tensors = (named[name].to(call.plan.compute_dtype) for name in (*function.per_step, *function.constant))
    return function.run(call.plan.leading, *tensors)
