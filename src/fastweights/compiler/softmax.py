"""The kernel of a softmax over logits that are not kept, found by their device."""

from contextlib import suppress
from functools import cache

import torch
from torch import Tensor

from fastweights.compiler.errors import Unbuilt
from fastweights.compiler.op import is_plain
from fastweights.compiler.targets.target import SoftmaxKernel, target_of


def softmax_kernel(logits: Tensor) -> SoftmaxKernel | None:
    """The kernel for some logits; None if PyTorch must compute them: another device or dtype, or no C++ compiler."""
    return _kernel(logits.device.type, logits.dtype) if logits.is_contiguous() and is_plain((logits,)) else None


@cache
def _kernel(device: str, dtype: torch.dtype) -> SoftmaxKernel | None:
    with suppress(Unbuilt):
        return target_of(device).softmax(dtype)
    return None
