"""The properties of this machine's CPU that kernels depend on."""

import platform
from contextlib import suppress
from functools import cache
from pathlib import Path

import torch


def lanes(dtype: torch.dtype) -> int:
    """Numbers per vector of this CPU."""
    flags = cpu().split()
    width = 64 if "avx512f" in flags else 32 if "avx2" in flags else 16
    return width // dtype.itemsize


@cache
def cpu() -> str:
    """The model and the features of this CPU. A kernel for another CPU must not be loaded."""
    with suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").split("\n\n")[0].splitlines()
        wanted = ("model name", "flags", "Features", "CPU part")
        return " ".join(line.partition(":")[2].strip() for line in lines if line.startswith(wanted))
    return f"{platform.machine()} {platform.processor()}"
