"""The target for CPUs: `plan` schedules the ways over time, `emit` writes them in C++, `build` compiles them."""

from collections.abc import Callable, Mapping
from ctypes import CDLL

import torch

from fastweights.cell import Cell
from fastweights.compiler import lowered
from fastweights.compiler.cpp import build
from fastweights.compiler.cpp.abi import write
from fastweights.compiler.cpp.build import lack
from fastweights.compiler.cpp.emit import Source
from fastweights.compiler.cpp.kernel import Kernel, OneStep, chunk
from fastweights.compiler.cpp.one_step import one_step_source
from fastweights.compiler.cpp.plan import plan, plan_one_step
from fastweights.compiler.target import fingerprint, title
from fastweights.compiler.unsupported import Unbuilt

__all__ = ["chunk", "kernel", "lack", "one_step", "source", "write"]


def source(cell: Cell, sizes: Mapping[str, int], dtype: torch.dtype) -> str:
    """The C++ of a cell.

    Raises:
        Unsupported: the cell leaves the subset that compiles.
    """
    lanes, sizes = build.lanes(dtype), dict(sorted(sizes.items()))
    ways = lowered(cell, sizes, dtype)
    programs = plan(ways, lanes)
    return Source(programs, title(cell, sizes, dtype), dtype, lanes).text()


def kernel(cell: Cell, sizes: Mapping[str, int], dtype: torch.dtype, text: str) -> Kernel:
    """The kernel of a cell whose step does what `text` says, from the cache or built.

    Raises:
        Unsupported: the cell leaves the subset that compiles.
        Unbuilt: there is no C++ compiler, or it fails.
    """
    stem = build.stem(cell.name, text, fingerprint("cpp"))
    library = build.load(stem) or _built(source, cell, sizes, dtype, stem)
    return Kernel(cell, sizes, dtype, library)


def one_step(cell: Cell, sizes: Mapping[str, int], dtype: torch.dtype, text: str) -> OneStep:
    """The same for one step by itself, a small library of its own."""
    stem = build.stem(f"{cell.name}-one-step", text, fingerprint("cpp"))
    library = build.load(stem) or _built(_one_step_source, cell, sizes, dtype, stem)
    return OneStep(cell, sizes, dtype, library)


def _built(text: Callable[..., str], cell: Cell, sizes: Mapping[str, int], dtype: torch.dtype, stem: str) -> CDLL:
    if why := lack():
        raise Unbuilt(why)  # before seconds go into a source that nobody builds
    return build.build(text(cell, sizes, dtype), stem)


def _one_step_source(cell: Cell, sizes: Mapping[str, int], dtype: torch.dtype) -> str:
    lanes, sizes = build.lanes(dtype), dict(sorted(sizes.items()))
    program = plan_one_step(lowered(cell, sizes, dtype), lanes)
    return one_step_source(program, f"One step of {title(cell, sizes, dtype)}", dtype, lanes)
