"""Floating-point types of scans, and autocast: sums over time keep their own precision inside an autocast region."""

from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor

PRECISIONS = (torch.float64, torch.float32, torch.bfloat16, torch.float16)
"""Data types in which scans compute, and that the parameters of a layer may have."""

HAS_BFLOAT16 = torch.backends.mkldnn.is_available() and torch.ops.mkldnn._is_mkldnn_bf16_supported()
"""Whether oneDNN has bfloat16 on this CPU."""


def autocasts(device: torch.device) -> bool:
    """Whether autocast is on for a device; False for a kind of device without autocast."""
    if not (torch.compiler.is_compiling() or torch._C._is_any_autocast_enabled()):
        return False
    kind = device.type
    return torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind)


def full_precision(device: torch.device) -> AbstractContextManager[object]:
    """A region without autocast."""
    return torch.autocast(device.type, enabled=False) if autocasts(device) else nullcontext()


def at_least_float32(x: Tensor) -> Tensor:
    """x in float32 if it is in half precision, otherwise x."""
    return x.to(torch.promote_types(x.dtype, torch.float32))
