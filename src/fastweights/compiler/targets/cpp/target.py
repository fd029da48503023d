"""The target for CPUs: `plan` schedules the passes over time, `emit` prints them as C++, `build` compiles the text."""

from collections.abc import Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from ctypes import CDLL
from functools import partial

import torch

from fastweights.compiler.errors import Unbuilt
from fastweights.compiler.ir.passes import Passes
from fastweights.compiler.ir.step_map import StepMap
from fastweights.compiler.targets.cell_spec import CellSpec
from fastweights.compiler.targets.cpp import build
from fastweights.compiler.targets.cpp.c_interface import write
from fastweights.compiler.targets.cpp.cpu import lanes
from fastweights.compiler.targets.cpp.emit import CppSource
from fastweights.compiler.targets.cpp.kernel import CppKernel, CppOneStep
from fastweights.compiler.targets.cpp.network.c_files import NetworkFiles
from fastweights.compiler.targets.cpp.network.library import network
from fastweights.compiler.targets.cpp.one_step import one_step_source
from fastweights.compiler.targets.cpp.plan import plan, plan_one_step
from fastweights.compiler.targets.cpp.softmax import softmax
from fastweights.compiler.targets.cpp.toolchain import missing_requirement
from fastweights.compiler.targets.target import fingerprint

__all__ = [
    "NetworkFiles",
    "kernel",
    "missing_requirement",
    "network",
    "one_step",
    "softmax",
    "source",
    "step_map",
    "write",
]


def source(spec: CellSpec, passes: Passes) -> str:
    """The C++ of a cell's forward and backward kernels."""
    return "\n".join(sources(spec, passes).values())


def sources(spec: CellSpec, passes: Passes) -> dict[str, str]:
    """The C++ of the library of every kernel, by the name of the kernel."""
    width = lanes(spec.dtype)
    file = partial(CppSource, plan(passes, width), spec.title, spec.dtype, width)
    return {"forward": file().forward(), "backward": file().backward()}


def one_step_sources(spec: CellSpec, passes: Passes) -> dict[str, str]:
    """The C++ of the library of a single time step, by the name of the kernel."""
    width = lanes(spec.dtype)
    return {"one-step": one_step_source(plan_one_step(passes, width), f"One step of {spec.title}", spec.dtype, width)}


def kernel(spec: CellSpec, text: str, passes: Callable[[], Passes]) -> CppKernel:
    """The kernel of a cell. `text` identifies the step in the cache."""
    return CppKernel(spec, partial(_libraries, lambda: sources(spec, passes()), spec.cell.name, text))


def one_step(spec: CellSpec, text: str, passes: Callable[[], Passes]) -> CppOneStep:
    """The built kernel of a single time step, which is a small library of its own.

    Raises:
        Unsupported: The cell leaves the subset of PyTorch that compiles.
        Unbuilt: There is no C++ compiler, or it fails.
    """
    libraries = _libraries(lambda: one_step_sources(spec, passes()), spec.cell.name, text, ["one-step"])
    return CppOneStep(spec, libraries["one-step"])


def step_map(function: StepMap, title: str, dtype: torch.dtype) -> None:
    """None: the operations of PyTorch compute it."""


def _libraries(
    sources: Callable[[], Mapping[str, str]], name: str, text: str, directions: Collection[str]
) -> dict[str, CDLL]:
    """Libraries of the cache; missing ones are built in parallel."""
    names = {direction: f"{name}-{direction}" for direction in directions}
    records = {direction: build.record(names[direction], text, fingerprint("cpp")) for direction in directions}
    loaded = {direction: build.load_recorded(names[direction], records[direction]) for direction in directions}
    missing = [direction for direction, library in loaded.items() if library is None]
    if missing and (why := missing_requirement()):
        raise Unbuilt(why)  # before emission, which takes seconds
    texts = sources() if missing else {}
    with ThreadPoolExecutor(len(directions)) as pool:
        built = {
            direction: pool.submit(build.load_or_build, names[direction], texts[direction], records[direction])
            for direction in missing
        }
        return {direction: library or built[direction].result() for direction, library in loaded.items()}
