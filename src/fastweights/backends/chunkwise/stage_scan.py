"""The scan of one stage: in fused kernels where the device has them for its form, else chunk by chunk in PyTorch."""

import torch
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
    missing_kernels,
)
from fastweights.backends.chunkwise.lowering import ScanStage
from fastweights.backends.chunkwise.part_layout import PartLayout, layout_of
from fastweights.backends.chunkwise.scan_across import scan_across
from fastweights.core.traced_constant import traced_constant


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


@traced_constant
def _traced_reason(device: str) -> str:
    return missing_kernels(device)


def stage_form(stage: ScanStage, is_half: bool) -> FusedForm:
    """The form of the kernels of a stage that runs in fused kernels."""
    layout = layout_of(stage.queries or stage.across, len(stage.writes), erasing := erasing_writes(stage))
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
    device = S.device.type
    reason = _traced_reason(device) if torch.compiler.is_compiling() else missing_kernels(device)
    if limit(stage) or reason:
        return scan(prepared.scan, S)
    # All steps are one chunk here: coefficients do not depend on chunks.
    time = [x.unsqueeze(1).movedim((1, 3), (0, 2)) for x in prepared.scan.time]
    steps = prepared.builder.steps(time, prepared.scan.constant, 0)
    along, across, last, erasing, factors = None, None, S, erasing_writes(stage), factors_of(stage.blocks)
    if stage.queries:
        layout = layout_of(stage.queries, len(steps.writes), erasing)
        operands = _half(layout.operands(steps, steps.queries, S, factors), layout, stage, prepared)
        y, last = fused_scan(operands, stage.blocks, layout.group, layout.reads_after, is_half)
        along = layout.reads_of(y, steps.offsets)
    if stage.across:
        layout = layout_of(stage.across, len(steps.writes), erasing)
        operands = layout.operands(steps, steps.across, S, factors)
        x, last = scan_across(operands, stage.blocks, layout.group, layout.reads_after, is_half)
        across = layout.reads_of(x, steps.across_offsets)
    return Reads(along, across), last


def _half(operands: ScanOperands, layout: PartLayout, stage: ScanStage, prepared: PreparedScan) -> ScanOperands:
    """The operands with half-precision inputs where these are q, k and v themselves."""
    if layout.parts > 1 or prepared.builder.extra or len(stage.parts) > 1 or stage.parts[0].groups:
        return operands
    own = (operands.q, operands.k, operands.v)
    q, k, v = (prepared.half_inputs.get(name, x) for name, x in zip(stage.inputs, own, strict=True))
    return operands._replace(q=q, k=k, v=v)
