"""The scan of one stage: in fused kernels where the device has them for its form, else chunk by chunk in PyTorch."""

from typing import Any

import torch
from torch import Tensor

from fastweights.backends.chunkwise.chunks import Reads, scan
from fastweights.backends.chunkwise.coefficients import PreparedScan
from fastweights.backends.chunkwise.fused_scan import LARGEST, FusedForm, ScanOperands, fused_scan, missing_kernels
from fastweights.backends.chunkwise.lowering import ScanStage
from fastweights.core.traced_constant import traced_constant


def why_not_fused(stage: ScanStage, device: str) -> str:
    """The reason why a stage does not run in fused kernels on a type of device; empty if it does."""
    return limit(stage) or missing_kernels(device)


def limit(stage: ScanStage) -> str:
    """The reason why the kernels do not know the form of a stage; empty if they do."""
    limits = {
        "states that mix": stage.is_coupled,
        "rows that decay by themselves": stage.rows_decay,
        "several writes per step": len(stage.writes) > 1,
        "several reads per step": len(stage.queries) > 1,
        "reads across the rows": bool(stage.across),
        "no reads": not stage.queries and not stage.across,
        f"more than {LARGEST} columns": stage.width > LARGEST,
    }
    return next((f"they do not know {limit}" for limit, applies in limits.items() if applies), "")


@traced_constant
def _traced_reason(device: str) -> str:
    return missing_kernels(device)


def stage_form(stage: ScanStage, is_half: bool) -> FusedForm:
    """The form of the kernels of a stage that runs in fused kernels."""
    ((erases, _),) = stage.writes
    factors = 0 if stage.decay_axes is None else stage.width if stage.decay_axes else 1
    rows = sum(part.height for part in stage.stacked)
    return FusedForm(stage.width, rows, factors, erases, stage.queries[0], is_half)


def run_scan(stage: ScanStage, prepared: PreparedScan, S: Tensor, is_half: bool) -> tuple[Reads, Tensor]:
    """The reads of every step, `[B, T, H, n, ...]`, and the last S, from the first S `[B, H, R, K]`.

    `is_half` is whether the inputs of the cell have half precision, so that products may be less exact.
    """
    device = S.device.type
    reason = _traced_reason(device) if torch.compiler.is_compiling() else missing_kernels(device)
    if limit(stage) or reason:
        return scan(prepared.scan, S)
    chunked = prepared.scan
    # All steps as one chunk: coefficients are the same in any.
    time = [x.unsqueeze(1).movedim((1, 3), (0, 2)) for x in chunked.time]
    steps = prepared.builder.steps(time, chunked.still, 0)
    (write,) = steps.writes
    coefficients = (*steps.queries, write.key, write.erase, write.value, steps.decay)
    q, k, e, v, a = map(_by_time, coefficients)
    if not prepared.builder.extra and len(stage.parts) == 1 and not stage.parts[0].groups:
        q, k, v = (prepared.half_inputs.get(name, x) for name, x in zip(stage.inputs, (q, k, v), strict=True))
    y, last = fused_scan(ScanOperands(q, k, e, v, a, S), stage.queries[0], is_half)
    for offsets in steps.offsets:
        y = y + _by_time(offsets)
    return Reads(y.unsqueeze(-2), None), last


def _by_time(x: Any) -> Any:
    """`[1, B, H, T, ...]` -> `[B, T, H, ...]`; None stays None."""
    return None if x is None else x.squeeze(0).movedim(2, 1)
