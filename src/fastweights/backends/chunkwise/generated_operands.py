"""The operands of a fused scan in one generated kernel: coefficients, resets and padding of all steps at once.

The compiler traces the functions that compute the operands in PyTorch, for one step and with their gradient. An operand
that is an input of the cell is passed on without a copy.
"""

from collections.abc import Hashable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from fastweights.backends.chunkwise.coefficients import PreparedScan
from fastweights.backends.chunkwise.factors import factors_of
from fastweights.backends.chunkwise.fused_scan import ScanOperands
from fastweights.backends.chunkwise.lowering import ScanStage
from fastweights.backends.chunkwise.part_layout import PartLayout
from fastweights.compiler import pipeline
from fastweights.compiler.errors import Unsupported
from fastweights.compiler.ir.step_map import StepMap
from fastweights.compiler.op import is_plain
from fastweights.compiler.targets.target import MapKernel, target_of
from fastweights.core.memo import get_or_compute

_KERNELS: dict[Hashable, "OperandKernel | None"] = {}


def generated_operands(
    stage: ScanStage, prepared: PreparedScan, layout: PartLayout, S: Tensor, is_across: bool
) -> ScanOperands | None:
    """The operands of a scan by a generated kernel; None where PyTorch computes them.

    That is the case for resets to a state other than 0, and where PyTorch has to see every operation.
    """
    builder = prepared.builder
    if builder.extra or prepared.left_over is not None or not is_plain([*prepared.scan.time, *prepared.scan.constant]):
        return None
    device, dtype = S.device.type, S.dtype
    key = stage.function.run, builder.names, layout, is_across, dtype, device
    kernel = get_or_compute(_KERNELS, key, lambda: _kernel(stage, prepared, layout, S, is_across))
    return None if kernel is None else kernel(prepared, S)


def _kernel(
    stage: ScanStage, prepared: PreparedScan, layout: PartLayout, S: Tensor, is_across: bool
) -> "OperandKernel | None":
    """The kernel of a stage; None if the device has no kernels, or the compiler none for an operation."""
    function = OperandFunction(stage, prepared, layout, is_across)
    try:
        traced = function.traced(S.dtype)
    except Unsupported:
        return None
    kernel = target_of(S.device.type).step_map(traced, f"Operands of {stage.parts[0].state}", S.dtype)
    return None if kernel is None else OperandKernel(function.is_present, traced, kernel)


class OperandFunction:
    """The operands of a scan as a function of the tensors of one step: inputs, params, and marks."""

    def __init__(self, stage: ScanStage, prepared: PreparedScan, layout: PartLayout, is_across: bool) -> None:
        self.stage, self.prepared, self.layout, self.is_across = stage, prepared, layout, is_across
        self.is_present: list[bool] = []

    def traced(self, dtype: torch.dtype) -> StepMap:
        """The function as tensor expressions, with its gradient."""
        scan, count = self.prepared.scan, len(self.stage.function.per_step)
        moving = [torch.full(x.shape[3:], 0.5, dtype=dtype) for x in scan.time]
        params = [torch.full(x.shape[1:], 0.5, dtype=dtype) for x in scan.constant]
        return pipeline.step_map(self, moving[:count], params, moving[count:])

    def __call__(self, *tensors: Tensor) -> list[list[Tensor]]:
        """The parts of q, k, e, v and a that the scan has, each `[groups, n]`."""
        builder, counts = self.prepared.builder, (len(self.stage.function.per_step), self.prepared.builder.num_params)
        inputs, params, marks = tensors[: counts[0]], tensors[counts[0] : sum(counts)], tensors[sum(counts) :]
        time = [x[None, None, None, None] for x in inputs]
        time += [self._mark(name, x) for name, x in zip(builder.names[counts[0] :], marks, strict=True)]
        steps = builder.steps(time, [x[None] for x in params], 0)
        vectors = steps.across if self.is_across else steps.queries
        operands = self.layout.placed(steps, vectors, factors_of(self.stage.blocks))
        self.is_present = [x is not None for x in operands]
        return [[part.flatten(0, 2) for part in parts] for parts in operands if parts is not None]

    def _mark(self, name: str, x: Tensor) -> Tensor:
        x = x[None, None, None, None]
        return x > 0 if name == "valid" else x


class OperandKernel:
    """The operands of a scan: those that are computed by a kernel, and those that are an input of the cell."""

    def __init__(self, is_present: Sequence[bool], function: StepMap, kernel: MapKernel) -> None:
        self.is_present, self.function, self.kernel = is_present, function, kernel

    def __call__(self, prepared: PreparedScan, S: Tensor) -> ScanOperands:
        """The operands of all steps, with the first S."""
        B, T, H = prepared.scan.time[0].shape[:3]
        named = zip(prepared.builder.names, prepared.scan.time, strict=True)
        inputs = [prepared.half_inputs.get(name, x) for name, x in named]
        inputs = [x if x.shape[2] == H else x.expand(B, T, H) for x in inputs]
        passed = {n: inputs[place] for n, place in self.function.copies.items()}
        if self.function.computed:
            outputs = AllSteps.apply(self.kernel, self.function, len(inputs), *inputs, *prepared.scan.constant)
            passed |= zip(self.kernel.differentiated, outputs, strict=True)
        tensors = iter(passed[n].reshape(B, -1, S.shape[1], self.function.outputs[n][0].shape[-1]) for n in range(len(passed)))
        return ScanOperands(*(next(tensors) if present else None for present in self.is_present), S)  # type: ignore[arg-type]


class AllSteps(torch.autograd.Function):
    """A function of one step for all steps, differentiable once.

    An output that is a copy of an input is a view of it, so that the kernel adds up the gradients of both.
    """

    @staticmethod
    def forward(ctx: Any, kernel: MapKernel, function: StepMap, count: int, *tensors: Tensor) -> tuple[Tensor, ...]:
        ctx.kernel, ctx.count = kernel, count
        ctx.save_for_backward(*tensors)
        inputs, params = tensors[:count], tensors[count:]
        computed, copies = iter(kernel.forward(inputs, params)), function.copies
        return tuple(
            inputs[copies[n]].view_as(inputs[copies[n]]) if n in copies else next(computed)
            for n in kernel.differentiated
        )

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *d_outputs: Tensor) -> tuple[Any, ...]:
        inputs, params = ctx.saved_tensors[: ctx.count], ctx.saved_tensors[ctx.count :]
        d_inputs, d_params = ctx.kernel.backward(inputs, params, d_outputs)
        gradients = [d_inputs.get(n) for n in range(len(inputs))], [d_params.get(n) for n in range(len(params))]
        return None, None, None, *gradients[0], *gradients[1]
