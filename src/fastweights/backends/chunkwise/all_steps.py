"""Functions of one time step in one generated kernel for all time steps, forward and backward.

The compiler traces a function in PyTorch for one step of one head, with its gradient. Where there is no such kernel,
and where PyTorch has to see every operation, callers compute all steps in PyTorch.
"""

from collections.abc import Callable, Hashable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from fastweights.backends.chunkwise.fused_scan import NO_SECOND_DERIVATIVE
from fastweights.compiler import pipeline
from fastweights.compiler.errors import Unsupported
from fastweights.compiler.ir.step_map import StepMap
from fastweights.compiler.op import is_plain
from fastweights.compiler.targets.target import MapKernel, target_of
from fastweights.core.memo import get_or_compute

StepFunction = Callable[..., Sequence[Sequence[Tensor]]]
"""Takes the inputs, params and marks of one step, and returns the parts of every output."""


class StepTensors(NamedTuple):
    """The arguments of a function of one step, for all steps.

    The inputs and the marks are `[B, T, H, ...]`, or `[B, T, 1]` for all heads. Inputs may have half precision. Marks
    have no gradient. The params `[H, ...]` are the same in all steps.
    """

    inputs: Sequence[Tensor]
    params: Sequence[Tensor]
    marks: Sequence[Tensor]


_KERNELS: dict[Hashable, tuple[StepMap, MapKernel] | None] = {}


def for_all_steps(
    key: Hashable,
    function: StepFunction,
    tensors: StepTensors,
    dtype: torch.dtype,
    result_dtype: torch.dtype,
) -> list[Tensor] | None:
    """The outputs `[B, T parts, H, ...]` of a function for all steps; None where PyTorch has to compute them.

    Args:
        key: Identifies the function.
        function: The function of one step.
        tensors: The arguments for all steps. The first input has all heads.
        dtype: The dtype of the computation.
        result_dtype: The dtype of the outputs. An output that is an input as it is keeps its own.
    """
    if not is_plain([*tensors.inputs, *tensors.params, *tensors.marks]):
        return None
    key = key, dtype, tensors.inputs[0].device.type
    known = get_or_compute(_KERNELS, key, lambda: _kernel(function, tensors, dtype))
    if known is None:
        return None
    step_map, kernel = known
    B, T, H = tensors.inputs[0].shape[:3]
    moving = [x if x.shape[2] == H else x.expand(B, T, H) for x in (*tensors.inputs, *tensors.marks)]
    outputs = {n: moving[place] for n, place in step_map.copies.items()}
    if step_map.computed:
        made = AllSteps.apply(kernel, step_map, result_dtype, len(moving), *moving, *tensors.params)
        outputs |= zip(kernel.differentiated, made, strict=True)
    return [outputs[n] for n in range(len(outputs))]


def traced(function: StepFunction, tensors: StepTensors, dtype: torch.dtype) -> StepMap:
    """A function of one step with its gradient, as tensor expressions.

    Raises:
        Unsupported: The compiler does not know an operation.
    """
    shapes = [x.shape[3:] for x in tensors.inputs], [x.shape[1:] for x in tensors.params], [()] * len(tensors.marks)
    return pipeline.step_map(function, *([torch.full(shape, 0.5, dtype=dtype) for shape in kind] for kind in shapes))


def _kernel(function: StepFunction, tensors: StepTensors, dtype: torch.dtype) -> tuple[StepMap, MapKernel] | None:
    """The kernel of a function; None if the device has none, or the compiler has none for an operation."""
    try:
        step_map = traced(function, tensors, dtype)
    except Unsupported:
        return None
    kernel = target_of(tensors.inputs[0].device.type).step_map(step_map, "A function of all steps", dtype)
    return None if kernel is None else (step_map, kernel)


class AllSteps(torch.autograd.Function):
    """The kernel of a function, differentiable once.

    An output that is a copy of an input is a view of it, so that the kernel adds up the gradients of both.
    """

    @staticmethod
    def forward(
        ctx: Any, kernel: MapKernel, step_map: StepMap, dtype: torch.dtype, count: int, *tensors: Tensor
    ) -> tuple[Tensor, ...]:
        ctx.kernel, ctx.count = kernel, count
        ctx.save_for_backward(*tensors)
        inputs, copies = tensors[:count], step_map.copies
        computed = iter(kernel.forward(inputs, tensors[count:], dtype))
        return tuple(
            inputs[copies[n]].view_as(inputs[copies[n]]) if n in copies else next(computed)
            for n in kernel.differentiated
        )

    @staticmethod
    def backward(ctx: Any, *d_outputs: Tensor) -> tuple[Any, ...]:
        return *[None] * 4, *_Gradients.apply(ctx.kernel, ctx.count, *ctx.saved_tensors, *d_outputs)


class _Gradients(torch.autograd.Function):
    """The gradients of a kernel, in a node that raises where PyTorch differentiates them."""

    @staticmethod
    def forward(ctx: Any, kernel: MapKernel, count: int, *tensors: Tensor) -> tuple[Tensor | None, ...]:
        rest = tensors[: -len(kernel.differentiated)]
        inputs, params = rest[:count], rest[count:]
        d_inputs, d_params = kernel.backward(inputs, params, tensors[len(rest) :])
        return *map(d_inputs.get, range(len(inputs))), *map(d_params.get, range(len(params)))

    backward = staticmethod(NO_SECOND_DERIVATIVE)
