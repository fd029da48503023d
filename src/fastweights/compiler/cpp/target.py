"""The target for CPUs: `plan` schedules the ways over time, `emit` writes them in C++, `build` compiles them."""

from collections.abc import Mapping

import torch

from fastweights.cell import Cell
from fastweights.compiler import lowered
from fastweights.compiler.cpp import build
from fastweights.compiler.cpp.abi import write
from fastweights.compiler.cpp.emit import Source
from fastweights.compiler.cpp.kernel import Kernel, chunk
from fastweights.compiler.cpp.plan import plan
from fastweights.compiler.target import fingerprint

__all__ = ["chunk", "kernel", "lack", "source", "write"]


def lack() -> str:
    """A compiler, if there is none."""
    return "" if build.compiler() else f"there is no C++ compiler. {build.REMEDY}"


def source(cell: Cell, sizes: Mapping[str, int], dtype: torch.dtype) -> str:
    """The C++ of a cell.

    Raises:
        Unsupported: the cell leaves the subset that compiles.
    """
    lanes, sizes = build.lanes(dtype), dict(sorted(sizes.items()))
    ways = lowered(cell, sizes, dtype)
    programs = plan(ways, lanes)
    axes = ", ".join(f"{axis}={size}" for axis, size in sizes.items())
    return Source(programs, f"{cell.name} with {axes} in {str(dtype).removeprefix('torch.')}", dtype, lanes).text()


def kernel(cell: Cell, sizes: Mapping[str, int], dtype: torch.dtype, text: str) -> Kernel:
    """The kernel of a cell whose step does what `text` says, from the cache or built.

    Raises:
        Unsupported: the cell leaves the subset that compiles.
        Unbuilt: there is no C++ compiler, or it fails.
    """
    stem = build.stem(cell.name, text, fingerprint("cpp"))
    library = build.load(stem) or build.build(source(cell, sizes, dtype), stem)
    return Kernel(cell, sizes, dtype, library)
