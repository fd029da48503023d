"""Running maxima in one kernel, from the numbers of all steps.

    m[t] = max(m[t-1] + plus[t], floor[t])

`torch.ops.fastweights.running_max` is one operation, which PyTorch can trace and differentiate once.
"""

from functools import cache
from importlib import import_module
from typing import Any, Protocol

import torch
from torch import Tensor

from fastweights.backends.chunkwise.fused_scan import NO_SECOND_DERIVATIVE
from fastweights.compiler.op import LIBRARY
from fastweights.compiler.targets.target import TARGETS

LIBRARY.define("running_max(Tensor plus, Tensor floor, Tensor m) -> (Tensor, Tensor, Tensor)")
LIBRARY.define(
    "running_max_backward(Tensor plus, Tensor floor, Tensor before, Tensor d_before, Tensor d_after, Tensor d_last)"
    " -> (Tensor, Tensor, Tensor)"
)


class FusedMax(Protocol):
    """Computes running maxima in one kernel."""

    def forward(self, plus: Tensor, floor: Tensor, m: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """m before and after every step, and the last m."""

    def backward(
        self, plus: Tensor, floor: Tensor, before: Tensor, d_before: Tensor, d_after: Tensor, d_last: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The gradients of `plus`, `floor` and m."""


@cache
def _implementation(target: str) -> FusedMax:
    module: Any = import_module(f"{__package__}.{target}.fused_max")
    return module


def fused_max(plus: Tensor, floor: Tensor, m: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """m before and after every step, `[B, T, H]`, and the last m, `[B, H]`; differentiable once.

    Equal arguments of a maximum share its gradient, as in PyTorch.

    Args:
        plus: What a step adds to m, `[B, T, H]`; -inf forgets m, even a NaN.
        floor: The least m after a step, `[B, T, H]`.
        m: m before the first step, `[B, H]`, in the dtype of the computation. The others may have half precision.
    """
    return torch.ops.fastweights.running_max(plus.contiguous(), floor.contiguous(), m.contiguous())


def _forward(plus: Tensor, floor: Tensor, m: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    return _implementation(TARGETS[m.device.type]).forward(plus, floor, m)


def _backward(plus: Tensor, floor: Tensor, before: Tensor, *gradients: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    d_before, d_after, d_last = (d.contiguous() for d in gradients)
    return _implementation(TARGETS[before.device.type]).backward(plus, floor, before, d_before, d_after, d_last)


for device in TARGETS:
    LIBRARY.impl("running_max", _forward, device.upper())
    LIBRARY.impl("running_max_backward", _backward, device.upper())


@torch.library.register_fake("fastweights::running_max", lib=LIBRARY)
def _forward_shapes(plus: Tensor, floor: Tensor, m: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    before = torch.empty_like(plus, dtype=m.dtype)
    return before, torch.empty_like(before), torch.empty_like(m)


@torch.library.register_fake("fastweights::running_max_backward", lib=LIBRARY)
def _backward_shapes(plus: Tensor, floor: Tensor, before: Tensor, *gradients: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    return torch.empty_like(plus), torch.empty_like(floor), torch.empty_like(gradients[-1])


def _keep_for_backward(ctx: Any, inputs: tuple[Tensor, ...], output: tuple[Tensor, ...]) -> None:
    plus, floor, _ = inputs
    ctx.save_for_backward(plus, floor, output[0])


def _gradients(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    return torch.ops.fastweights.running_max_backward(*ctx.saved_tensors, *gradients)


torch.library.register_autograd("fastweights::running_max_backward", NO_SECOND_DERIVATIVE, lib=LIBRARY)
torch.library.register_autograd("fastweights::running_max", _gradients, setup_context=_keep_for_backward, lib=LIBRARY)
