"""`torch.ops.fastweights.chosen_logits`: the logit of one word per row, and the log-sum-exp over all words.

The operation stores no logits. It exists on GPUs, and supports torch.compile and first derivatives.
"""

from functools import cache
from importlib import import_module
from typing import Any, Protocol

import torch
from torch import Tensor

from fastweights.compiler.op import LIBRARY
from fastweights.compiler.targets.target import TARGETS, target_of
from fastweights.core.errors import invalid

OPERANDS = "Tensor h, Tensor weight, Tensor bias, Tensor chosen, Tensor bounds"
LIBRARY.define(f"chosen_logits({OPERANDS}) -> (Tensor, Tensor)")
LIBRARY.define(
    f"chosen_logits_backward({OPERANDS}, Tensor totals, Tensor d_picked, Tensor d_totals) -> (Tensor, Tensor, Tensor)"
)
WITH_KERNEL = ("triton",)
"""The targets with a module `chosen_logits`."""


class ChosenLogits(Protocol):
    """Computes the logit of one word per row, and the log-sum-exp over all words."""

    def forward(self, h: Tensor, weight: Tensor, bias: Tensor, chosen: Tensor, bounds: Tensor) -> tuple[Tensor, Tensor]:
        """The chosen logits and the log-sum-exps `[N]` in at least float32, 0 for rows outside of the bounds."""

    def backward(
        self,
        h: Tensor,
        weight: Tensor,
        bias: Tensor,
        chosen: Tensor,
        bounds: Tensor,
        totals: Tensor,
        d_picked: Tensor,
        d_totals: Tensor,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The gradients of h, the weight and the bias."""


def has_kernel(device: torch.device) -> bool:
    """Whether a device has the operation."""
    return TARGETS.get(device.type) in WITH_KERNEL and _builds(device.type)


@cache
def _builds(device: str) -> bool:
    return not target_of(device).missing_requirement()


def kernel_logits(h: Tensor, weight: Tensor, bias: Tensor, chosen: Tensor, bounds: Tensor) -> tuple[Tensor, Tensor]:
    """The logit of one word per row and the log-sum-exp over all words, with first derivatives.

    Args:
        h: Hidden states `[N, D]`.
        weight: Rows of the words `[W, D]`, in the dtype of h.
        bias: Bias of the words `[W]`, in the dtype of h.
        chosen: Index of a word per row, int64 `[N]`.
        bounds: First row that is computed and the end, int64 `[2]` on the device. Other rows have results of 0.

    Returns:
        The logits `[N]`, and the log-sum-exps `[N]`, in float32 or float64.
    """
    return torch.ops.fastweights.chosen_logits(*(x.contiguous() for x in (h, weight, bias, chosen, bounds)))


def _implementation(like: Tensor) -> ChosenLogits:
    module: Any = import_module(f"fastweights.compiler.targets.{TARGETS[like.device.type]}.chosen_logits")
    return module


def _forward(h: Tensor, weight: Tensor, bias: Tensor, chosen: Tensor, bounds: Tensor) -> tuple[Tensor, Tensor]:
    return _implementation(h).forward(h, weight, bias, chosen, bounds)


def _backward(
    h: Tensor, weight: Tensor, bias: Tensor, chosen: Tensor, bounds: Tensor, totals: Tensor, *gradients: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    d_picked, d_totals = (d.contiguous() for d in gradients)
    return _implementation(h).backward(h, weight, bias, chosen, bounds, totals, d_picked, d_totals)


for device in TARGETS:
    LIBRARY.impl("chosen_logits", _forward, device.upper())
    LIBRARY.impl("chosen_logits_backward", _backward, device.upper())


@torch.library.register_fake("fastweights::chosen_logits", lib=LIBRARY)
def _forward_shapes(h: Tensor, *others: Tensor) -> tuple[Tensor, Tensor]:
    totals = h.new_empty(len(h), dtype=torch.promote_types(h.dtype, torch.float32))
    return totals, torch.empty_like(totals)


@torch.library.register_fake("fastweights::chosen_logits_backward", lib=LIBRARY)
def _backward_shapes(h: Tensor, weight: Tensor, bias: Tensor, *others: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    return torch.empty_like(h), torch.empty_like(weight), torch.empty_like(bias)


def _keep_for_backward(ctx: Any, inputs: tuple[Tensor, ...], output: tuple[Tensor, Tensor]) -> None:
    ctx.save_for_backward(*inputs, output[1])


def _gradients(ctx: Any, d_picked: Tensor, d_totals: Tensor) -> tuple[Tensor | None, ...]:
    gradients = torch.ops.fastweights.chosen_logits_backward(*ctx.saved_tensors, d_picked, d_totals)
    return *gradients, None, None


def refuse_second_derivative(ctx: Any, *grads: Any) -> None:
    """Raises an `InputError`: the backward pass of the backward pass."""
    raise invalid(
        "nll", "differentiated once", "a second derivative", "Use log_prob, which has derivatives of any order."
    )


torch.library.register_autograd("fastweights::chosen_logits_backward", refuse_second_derivative, lib=LIBRARY)
torch.library.register_autograd("fastweights::chosen_logits", _gradients, setup_context=_keep_for_backward, lib=LIBRARY)
