"""The chunkwise backend: chunks of time steps as matrix products, for cells whose states are affine in themselves.

The compiler derives the affine form of a cell. `lowering.py` turns the form into functions that run before the scans of
the states, between them, and after the last: all of them for all time steps at once, in PyTorch on any device.
`chunks.py` scans.
"""

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any, NamedTuple

import torch
from torch import Tensor

from fastweights.backends._specialisation import unsupported_transform
from fastweights.backends.chunkwise.all_steps import StepTensors, for_all_steps
from fastweights.backends.chunkwise.chunks import Reads
from fastweights.backends.chunkwise.coefficients import matrix, prepare_scan, states, values_read
from fastweights.backends.chunkwise.delay import run_delay
from fastweights.backends.chunkwise.lowering import (
    ChunkwiseLowering,
    LoweredStage,
    RecurrentStage,
    RunningMaxStage,
    ScanStage,
    StageFunction,
    evaluate,
    lowering_of,
    named_tensors,
)
from fastweights.backends.chunkwise.pieces import in_pieces, joined, pieces_of
from fastweights.backends.chunkwise.recurrent import run_loop
from fastweights.backends.chunkwise.running_max import running_max
from fastweights.backends.chunkwise.stage_scan import run_scan, why_not_fused
from fastweights.call.plan import FastPath
from fastweights.call.scan_call import ScanCall
from fastweights.core.padding import mask_steps
from fastweights.state import where

SHORT = 64
"""Maximum number of steps of a short sequence, for which nothing is computed twice."""
LARGE = {
    "sums": {"short": 10_000, "long": 1 << 16},
    "other": {"short": 1 << 16, "long": 1 << 17},
    "memories": {"short": 1 << 19, "long": 3 << 16},
    "columns": {"short": 1 << 19, "long": 1 << 18},
    "coupled": {"short": 1 << 19, "long": 1 << 19},
    "recurrent": {"short": 1 << 17, "long": 1 << 17},
}
"""Entries in the state of a head from which training is faster than by a compiled kernel, measured on CPUs.

They differ between memories that only add up, several memories per head, memories whose columns decay by themselves,
coupled states that erase nothing, recurrent cells with an affine part, and others. Coupled states that erase are not
faster up to 1,179,648 entries.
"""
MANY = 1 << 26
"""Entries in the states of all heads and time steps from which that holds for recurrent cells. With fewer, what the
compiled kernel keeps is small, and the chunks save less than the further operations cost."""

FUSED = 16
"""The number of steps from which fused kernels run on a GPU."""

Named = Mapping[str, Tensor]


def unsupported_reason(call: ScanCall, build: bool) -> str:
    """Why this backend cannot run a call; empty if it can."""
    transform = unsupported_transform()
    if transform:
        return transform
    lowering = lowering_of(call.with_inner_cell())
    return lowering if isinstance(lowering, str) else ""


def cost(call: ScanCall) -> float:
    """The time relative to a compiled kernel: 3 to 20 were measured in PyTorch.

    It is less than 1 where large states are trained on a CPU, since the states that the compiled kernel keeps of a
    chunk exceed the cache. It is less than 1 for fused kernels, by the number of their instructions; their time has not
    been measured.
    """
    return 0.8 if _is_fastest(call) else 5.0


def _is_fastest(call: ScanCall) -> bool:
    """Whether chunks are faster than a compiled kernel."""
    if torch.compiler.is_exporting():
        return False  # T may be a symbol, so nothing may depend on it
    if call.plan.device.type != "cpu":
        return call.plan.leading[1] >= FUSED and not _why_not_fused(call)
    T = call.plan.leading[1]
    size, length = sum(leaf[0, 0].numel() for leaf in call.tensors.state), "short" if T <= SHORT else "long"
    if not call.plan.wants_gradients or T == 1 or size < LARGE["sums"][length]:
        return False
    lowering = lowering_of(call.with_inner_cell())
    if isinstance(lowering, str) or lowering.kind not in LARGE:
        return False
    is_many = lowering.kind != "recurrent" or size * prod(call.plan.leading) >= MANY
    return is_many and size >= LARGE[lowering.kind][length]


def _why_not_fused(call: ScanCall) -> str:
    """The first reason why a stage does not run in fused kernels; empty if all do."""
    lowering = lowering_of(call.with_inner_cell())
    if isinstance(lowering, str):
        return lowering
    if any(isinstance(stage, RecurrentStage) for stage in lowering.stages):
        return "some states are computed step by step"
    scans = [stage for stage in lowering.stages if isinstance(stage, ScanStage)]
    reasons = [why_not_fused(stage, call.plan.device.type) for stage in scans]
    return next(filter(None, reasons), "") if scans else "there is no scan"


def describe(call: ScanCall) -> str:
    """The affine form of the cell, or why there is none; on GPUs also whether fused kernels run it."""
    lowering = lowering_of(call.with_inner_cell())
    if isinstance(lowering, str) or call.plan.device.type == "cpu":
        return lowering if isinstance(lowering, str) else lowering.description
    reason = _why_not_fused(call)
    how = f"in PyTorch, not in fused kernels: {reason}" if reason else "in fused kernels"
    return f"{lowering.description} ({how})"


def is_half(call: ScanCall) -> bool:
    """Whether the inputs have half precision."""
    return call.plan.dtype != call.plan.compute_dtype


def fast_path(call: ScanCall) -> FastPath | None:
    """None: choosing a backend takes no time compared with a run."""
    return None


def run(call: ScanCall) -> tuple[Tensor, Any]:
    """Runs the affine form of the cell chunk by chunk."""
    call = call.with_inner_cell()
    lowering = lowering_of(call)
    assert not isinstance(lowering, str)
    state, call = call.tensors.state, in_pieces(call, lowering.splits)
    named = named_tensors(call, lowering)
    last: dict[str, Tensor] = {}
    for stage in lowering.stages:
        values, ends = _run_stage(stage, call, named)
        named, last = named | values, last | ends
    return _output(lowering, call, named), joined(last, lowering.splits, state)


class Segment(NamedTuple):
    """A segment of time as a function of the S `[B, H, R, K]` before it.

    The segment reads `base + S queries` and ends with `S decay + written`.
    """

    base: Tensor  # [B, T, H, n, R]
    queries: Tensor  # [B, T, H, n, K]
    decay: Tensor  # [B, H, K, K]
    written: Tensor  # [B, H, R, K]
    lowering: ChunkwiseLowering
    call: ScanCall
    named: Named

    def after(self, state: Any) -> Any:
        """The state after the segment, from the state before it."""
        (stage,) = self.lowering.stages
        assert isinstance(stage, ScanStage)
        pieces = pieces_of(state, self.lowering.splits)
        ends = states(stage, matrix(stage, pieces) @ self.decay + self.written)
        return joined(ends, self.lowering.splits, state)

    def output(self, state: Any) -> Tensor:
        """y of every step, from the state before the segment."""
        (stage,) = self.lowering.stages
        assert isinstance(stage, ScanStage)
        pieces = pieces_of(state, self.lowering.splits)
        read = self.base + torch.einsum("bhrk,bthnk->bthnr", matrix(stage, pieces), self.queries)
        return _output(self.lowering, self.call, {**self.named, **values_read(stage, Reads(read, None))})


def segment(call: ScanCall) -> Segment | None:
    """The segment of a call; None unless its states are rows of one matrix that is read along them."""
    call = call.with_inner_cell()
    lowering = lowering_of(call)
    if isinstance(lowering, str) or len(lowering.stages) > 1 or not isinstance(stage := lowering.stages[0], ScanStage):
        return None
    if stage.across or stage.rows_decay:
        return None
    call = in_pieces(call, lowering.splits)
    named, K = named_tensors(call, lowering), stage.width
    # The scan starts from S = 0 and, in further rows to which nothing is written, from S = I.
    zeros = torch.zeros_like(matrix(stage, call.tensors.state))
    identity = torch.eye(K, dtype=zeros.dtype, device=zeros.device).expand(*zeros.shape[:2], K, K)
    prepared = prepare_scan(stage, call, named, K)
    read, last = run_scan(stage, prepared, torch.cat([zeros, identity], -2), is_half(call))
    rows = [zeros.shape[-2], K]
    assert read.along is not None
    (base, queries), (written, decay) = read.along.split(rows, -1), last.split(rows, -2)
    return Segment(base, queries, decay, written, lowering, call, named)


def _output(lowering: ChunkwiseLowering, call: ScanCall, named: Named) -> Tensor:
    """y of every step, from the inputs and what is read."""
    plan, valid = call.plan, call.valid
    generated = _generated(lowering.output, call, named, plan.dtype, valid)
    if generated is not None:
        return generated[0].to(plan.dtype)
    (y,) = evaluate(lowering.output, call, named)
    y = y.expand(*plan.leading, *y.shape[3:]).to(plan.dtype)
    return y if valid is None else mask_steps(valid, y)


def _generated(
    function: StageFunction, call: ScanCall, named: Named, dtype: torch.dtype, valid: Tensor | None = None
) -> list[Tensor] | None:
    """The values of a function for all steps by a generated kernel; None where PyTorch has to compute them.

    They are 0 in steps that are not `valid`. A value that is an input keeps its dtype; the others have `dtype`.
    """
    inputs, params = ([named[name] for name in names] for names in (function.per_step, function.constant))
    count = len(inputs) + len(params)

    def values(*tensors: Tensor) -> list[Sequence[Tensor]]:
        marks = tensors[count:]
        results = function.run((), *tensors[:count])
        return [(torch.where(marks[0] > 0, value, 0.0) if marks else value,) for value in results]

    tensors = StepTensors(inputs, params, [] if valid is None else [valid[..., None]])
    return for_all_steps((function.run, valid is not None), values, tensors, call.plan.compute_dtype, dtype)


def _scan(stage: ScanStage, call: ScanCall, named: Named) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """The values that the cell reads from the states of a stage, and the last states, by name."""
    prepared = prepare_scan(stage, call, named)
    state, reset = call.tensors.state, call.tensors.reset
    if reset is not None:
        # A reset at the first step replaces the carried state, so that a NaN in it does not survive.
        state = where(reset[:, 0], call.tensors.initial_state, state)
    read, last = run_scan(stage, prepared, matrix(stage, state), is_half(call))
    if prepared.left_over is not None:
        last = last + prepared.left_over
    return values_read(stage, read), states(stage, last)


def _run_stage(stage: LoweredStage, call: ScanCall, named: Named) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """The values that later stages read, and the last states, by name."""
    if isinstance(stage, ScanStage):
        return _scan(stage, call, named)
    if isinstance(stage, RunningMaxStage):
        return _run_max(stage, call, named)
    if isinstance(stage, RecurrentStage):
        return run_loop(stage, call, named)
    before, after, last = run_delay(stage, call, named)
    return {stage.before: before, stage.after: after}, {stage.state: last}


def _run_max(stage: RunningMaxStage, call: ScanCall, named: Named) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """A scalar before and after every step, and the last one, by name."""
    plan = call.plan
    plus, floor = _generated(stage.function, call, named, plan.compute_dtype) or (
        x.expand(plan.leading) for x in evaluate(stage.function, call, named)
    )
    start = None if call.tensors.reset is None else call.tensors.initial_state[stage.state]
    before, after, last = running_max(call.tensors.state[stage.state], plus, floor, start, call)
    return {stage.before: before, stage.after: after}, {stage.state: last}
