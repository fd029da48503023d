"""The scan of one stage: in fused kernels where the device has them for its form, else chunk by chunk in PyTorch."""

from collections.abc import Sequence

from torch import Tensor

from fastweights.backends.chunkwise.chunks import Reads, scan
from fastweights.backends.chunkwise.coefficients import PreparedScan
from fastweights.backends.chunkwise.factors import factors_of
from fastweights.backends.chunkwise.fused_scan import (
    LARGEST,
    STEPS,
    FusedForm,
    ScanOperands,
    fused_scan,
    missing_here,
    missing_kernels,
)
from fastweights.backends.chunkwise.generated_operands import generated_operands
from fastweights.backends.chunkwise.lowering import ScanStage
from fastweights.backends.chunkwise.part_layout import PartLayout, layout_of
from fastweights.backends.chunkwise.scan_across import scan_across


def why_not_fused(stage: ScanStage, device: str) -> str:
    """The reason why a stage does not run in fused kernels on a type of device; empty if it does."""
    return limit(stage) or missing_kernels(device)


def limit(stage: ScanStage) -> str:
    """The reason why the kernels do not know the form of a stage; empty if they do."""
    limits = {
        "more than two of its states mix": stage.blocks > 2,
        "its states mix, and a step erases more than once": stage.is_coupled and erasing_writes(stage) > 1,
        "rows of its state decay by themselves": stage.rows_decay,
        f"a step erases more than {STEPS} times": erasing_writes(stage) > STEPS,
        "nothing reads its state": not stage.queries and not stage.across,
        f"its state has more than {LARGEST} columns": stage.width > LARGEST,
    }
    return next((reason for reason, applies in limits.items() if applies), "")


def erasing_writes(stage: ScanStage) -> int:
    """The number of writes of a step that erase."""
    return sum(erases for erases, _ in stage.writes)


def stage_form(stage: ScanStage, is_half: bool) -> FusedForm:
    """The form of the kernels of a stage that runs in fused kernels."""
    layout, erasing = layout_of_stage(stage, is_across=not stage.queries), erasing_writes(stage)
    axes, states = stage.decay_axes, stage.blocks
    by_column = axes is not None and axes > 2 * stage.is_coupled
    factors = 0 if axes is None else states * stage.width if by_column else states**2
    rows = sum(part.height for part in stage.stacked)
    erases = layout.group if erasing else 0
    return FusedForm(stage.width, rows, factors, states, erases, layout.reads_after, is_half)


def run_scan(stage: ScanStage, prepared: PreparedScan, S: Tensor, is_half: bool) -> tuple[Reads, Tensor]:
    """The reads of every step, `[B, T, H, n, ...]`, and the last S, from the first S `[B, H, R, K]`.

    `is_half` is whether the inputs of the cell have half precision, so that products may be less exact.
    """
    if limit(stage) or missing_here(S.device.type):
        return scan(prepared.scan, S)
    along, across, last = None, None, S
    if stage.queries:
        operands, layout, offsets = _operands(stage, prepared, S, is_across=False)
        y, last = fused_scan(operands, stage.blocks, layout.group, layout.reads_after, is_half)
        along = layout.reads_of(y, offsets)
    if stage.across:
        operands, layout, offsets = _operands(stage, prepared, S, is_across=True)
        x, last = scan_across(operands, stage.blocks, layout.group, layout.reads_after, is_half)
        across = layout.reads_of(x, offsets)
    return Reads(along, across), last


def layout_of_stage(stage: ScanStage, is_across: bool) -> PartLayout:
    """The parts of a step for the reads along the columns, or across the rows."""
    return layout_of(stage.across if is_across else stage.queries, len(stage.writes), erasing_writes(stage))


def _operands(
    stage: ScanStage, prepared: PreparedScan, S: Tensor, is_across: bool
) -> tuple[ScanOperands, PartLayout, Sequence[Tensor]]:
    """The operands of a scan, their layout, and the offsets of the reads.

    One generated kernel computes them or, where `generated_operands` has none, PyTorch.
    """
    layout = layout_of_stage(stage, is_across)
    operands = generated_operands(stage, prepared, layout, S, is_across)
    if operands is not None:
        return operands, layout, ()
    # All steps are one chunk here: coefficients do not depend on chunks.
    time = [x.unsqueeze(1).movedim((1, 3), (0, 2)) for x in prepared.scan.time]
    steps, factors = prepared.builder.steps(time, prepared.constant, 0), factors_of(stage.blocks)
    if is_across:
        return layout.operands(steps, steps.across, S, factors), layout, steps.across_offsets
    operands = layout.operands(steps, steps.queries, S, factors)
    return _half(operands, layout, stage, prepared), layout, steps.offsets


def _half(operands: ScanOperands, layout: PartLayout, stage: ScanStage, prepared: PreparedScan) -> ScanOperands:
    """The operands with half-precision inputs where these are q, k and v themselves."""
    has_marks = len(prepared.builder.names) > len(stage.function.per_step)
    if has_marks or layout.parts > 1 or prepared.builder.extra or len(stage.parts) > 1 or stage.parts[0].groups:
        return operands
    own = (operands.q, operands.k, operands.v)
    q, k, v = (prepared.time.get(name, x) for name, x in zip(stage.inputs, own, strict=True))
    return operands._replace(q=q, k=k, v=v)
