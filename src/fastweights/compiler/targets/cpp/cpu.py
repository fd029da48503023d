"""The properties of this machine's CPU that kernels depend on."""

import platform
from functools import cache

import torch

from fastweights.core.cpu_info import cpu_info


def lanes(dtype: torch.dtype) -> int:
    """Numbers per vector of this CPU."""
    flags = cpu().split()
    width = 64 if "avx512f" in flags else 32 if "avx2" in flags else 16
    return width // dtype.itemsize


@cache
def cpu() -> str:
    """The model and the features of this CPU. A kernel for another CPU must not be loaded."""
    names = ("model name", "flags", "Features", "CPU part")
    values = [value for name, value in cpu_info().items() if name in names]
    return " ".join(values) or f"{platform.machine()} {platform.processor()}"
