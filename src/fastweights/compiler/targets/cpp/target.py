"""The target for CPUs: `plan` schedules the ways over time, `emit` writes them in C++, `build` compiles them."""

from collections.abc import Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from ctypes import CDLL
from functools import partial

import torch

from fastweights.cell import Cell
from fastweights.compiler import lowered
from fastweights.compiler.errors import Unbuilt
from fastweights.compiler.targets.cpp import build
from fastweights.compiler.targets.cpp.c_interface import write
from fastweights.compiler.targets.cpp.cpu import lanes
from fastweights.compiler.targets.cpp.emit import Source
from fastweights.compiler.targets.cpp.kernel import Kernel, OneStep
from fastweights.compiler.targets.cpp.one_step import one_step_source
from fastweights.compiler.targets.cpp.plan import plan, plan_one_step
from fastweights.compiler.targets.cpp.toolchain import lack
from fastweights.compiler.targets.target import fingerprint, title

__all__ = ["kernel", "lack", "one_step", "source", "walks", "write"]


def source(cell: Cell, sizes: Mapping[str, int], dtype: torch.dtype) -> str:
    """The C++ of a cell, of the way forward and of the way back.

    Raises:
        Unsupported: the cell leaves the subset that compiles.
    """
    return "\n".join(_sources(cell, sizes, dtype).values())


def _sources(cell: Cell, sizes: Mapping[str, int], dtype: torch.dtype) -> dict[str, str]:
    width, sizes = lanes(dtype), dict(sorted(sizes.items()))
    file = partial(Source, plan(lowered(cell, sizes, dtype), width), title(cell, sizes, dtype), dtype, width)
    return {"forward": file().forward(), "backward": file().backward()}


def kernel(cell: Cell, sizes: Mapping[str, int], dtype: torch.dtype, text: str) -> Kernel:
    """The kernel of a cell whose step does what `text` says."""
    return Kernel(cell, sizes, dtype, partial(_libraries, partial(_sources, cell, sizes, dtype), cell.name, text))


def one_step(cell: Cell, sizes: Mapping[str, int], dtype: torch.dtype, text: str) -> OneStep:
    """The same for one step by itself, a small library of its own.

    Raises:
        Unsupported: the cell leaves the subset that compiles.
        Unbuilt: there is no C++ compiler, or it fails.
    """
    sources = partial(_one_step_source, cell, sizes, dtype)
    return OneStep(cell, sizes, dtype, _libraries(sources, cell.name, text, ["one-step"])["one-step"])


def walks() -> None:
    """None of its own: a call of a matrix product takes no longer than its work."""


def _libraries(
    sources: Callable[[], Mapping[str, str]], name: str, text: str, ways: Collection[str]
) -> dict[str, CDLL]:
    """Libraries of the cache; missing ones are built in parallel."""
    names = {way: f"{name}-{way}" for way in ways}
    records = {way: build.record(names[way], text, fingerprint("cpp")) for way in ways}
    loaded = {way: build.load_recorded(names[way], records[way]) for way in ways}
    missing = [way for way, library in loaded.items() if library is None]
    if missing and (why := lack()):
        raise Unbuilt(why)  # before seconds go into a source that nobody builds
    texts = sources() if missing else {}
    with ThreadPoolExecutor(len(ways)) as pool:
        built = {way: pool.submit(build.load_or_build, names[way], texts[way], records[way]) for way in missing}
        return {way: library or built[way].result() for way, library in loaded.items()}


def _one_step_source(cell: Cell, sizes: Mapping[str, int], dtype: torch.dtype) -> dict[str, str]:
    width, sizes = lanes(dtype), dict(sorted(sizes.items()))
    program = plan_one_step(lowered(cell, sizes, dtype), width)
    return {"one-step": one_step_source(program, f"One step of {title(cell, sizes, dtype)}", dtype, width)}
