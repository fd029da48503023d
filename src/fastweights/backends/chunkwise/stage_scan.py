"""The scan of one stage: in fused kernels where the device has them for its form, else chunk by chunk in PyTorch."""

from collections.abc import Callable, Sequence
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
        "its states mix": stage.is_coupled,
        "rows of its state decay by themselves": stage.rows_decay,
        "a step erases more than once": sum(erases for erases, _ in stage.writes) > 1,
        "a read goes across the rows": bool(stage.across),
        "some reads are before the step and some after it": len({*stage.queries}) > 1,
        "no read goes along the columns": not stage.queries,
        f"its state has more than {LARGEST} columns": stage.width > LARGEST,
    }
    return next((reason for reason, applies in limits.items() if applies), "")


@traced_constant
def _traced_reason(device: str) -> str:
    return missing_kernels(device)


def stage_form(stage: ScanStage, is_half: bool) -> FusedForm:
    """The form of the kernels of a stage that runs in fused kernels."""
    erases, _ = stage.writes[0]  # writes that erase come first
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
    operands, reads = _operands(stage, prepared, S)
    y, last = fused_scan(operands, stage.queries[0], is_half)
    return Reads(reads(y), None), last


def _operands(stage: ScanStage, prepared: PreparedScan, S: Tensor) -> tuple[ScanOperands, Callable[[Tensor], Tensor]]:
    """The operands of a fused scan, and the function from its y to the reads of every step, `[B, T, H, n, R]`.

    The kernels write and read once per step. So a step with several writes or reads becomes several steps. Only the
    first write erases and follows the decay of the step.
    """
    # All steps are one chunk here: coefficients do not depend on chunks.
    time = [x.unsqueeze(1).movedim((1, 3), (0, 2)) for x in prepared.scan.time]
    steps = prepared.builder.steps(time, prepared.scan.still, 0)
    parts = len(steps.writes) + len(steps.queries) - 1
    first_write, first_read = (0, len(steps.writes) - 1) if stage.queries[0] else (len(steps.queries) - 1, 0)

    def placed(vectors: Sequence[Tensor | None], first: int, fill: float = 0.0) -> Any:
        return _placed([None if x is None else _by_time(x) for x in vectors], first, parts, fill)

    keys, erase, values = zip(*steps.writes, strict=True)
    e, a = placed(erase[:1], first_write), placed([steps.decay], first_write, 1.0)
    q, k, v = placed(steps.queries, first_read), placed(keys, first_write), placed(values, first_write)
    if parts == 1 and not prepared.builder.extra and len(stage.parts) == 1 and not stage.parts[0].groups:
        q, k, v = (prepared.half_inputs.get(name, x) for name, x in zip(stage.inputs, (q, k, v), strict=True))
    offsets = torch.stack([_by_time(x) for x in steps.offsets], -2) if steps.offsets else 0.0

    def reads(y: Tensor) -> Tensor:
        y = y.unflatten(1, (-1, parts))[:, :, first_read : first_read + len(steps.queries)]
        return y.movedim(2, 3) + offsets

    return ScanOperands(q, k, e, v, a, S), reads


def _placed(vectors: Sequence[Tensor | None], first: int, parts: int, fill: float) -> Tensor | None:
    """Vectors `[B, T, H, n]` of steps that become several `parts` each, `[B, T parts, H, n]`; None without vectors.

    The first vector belongs to the part `first`. The other parts have the value `fill`.
    """
    some = next((x for x in vectors if x is not None), None)
    if some is None or parts == 1:
        return some
    empty = torch.full_like(some, fill)
    chosen = [empty] * first + [empty if x is None else x for x in vectors]
    return torch.stack(chosen + [empty] * (parts - len(chosen)), 2).flatten(1, 2)


def _by_time(x: Tensor) -> Tensor:
    """`[1, B, H, T, ...]` -> `[B, T, H, ...]`."""
    return x.squeeze(0).movedim(2, 1)
