"""Triton: one program a head, or a part of its rows, for chips of NVIDIA and AMD."""

from collections.abc import Mapping
from importlib.util import find_spec

import torch

from fastweights.cell import Cell
from fastweights.compiler.clean_thread import alone
from fastweights.compiler.errors import Unbuilt
from fastweights.compiler.frontend.lower import lower
from fastweights.compiler.frontend.trace import trace
from fastweights.compiler.ir.step import Step
from fastweights.compiler.targets.target import WAYS, title
from fastweights.compiler.targets.triton.kernel import Kernel
from fastweights.compiler.targets.triton.source import sourced

OLDEST = (3, 6)
"""What the kernels were compiled and interpreted with."""
CAPABILITY = (8, 0)
"""The oldest chips of NVIDIA that Triton compiles for."""


def missing_requirement() -> str:
    """What this machine lacks to build any kernel, and what to do about it; empty if it lacks nothing."""
    if find_spec("triton") is None:
        return "there is no Triton. pip install 'fastweights[gpu]'"
    import triton

    version = triton.__version__
    if tuple(map(int, version.split(".")[:2])) < OLDEST:
        return f"Triton is {version}, and {'.'.join(map(str, OLDEST))} is needed. pip install 'fastweights[gpu]'"
    if torch.cuda.is_available() and torch.version.hip is None and torch.cuda.get_device_capability() < CAPABILITY:
        return f"{torch.cuda.get_device_name()} is older than what Triton compiles for: compute capability 8.0"
    return ""


def source(cell: Cell, sizes: Mapping[str, int], dtype: torch.dtype) -> str:
    """The code of a cell's kernels. Raises `Unsupported` if the cell leaves the subset that compiles."""
    return sourced(step(cell, sizes, dtype), title(cell, sizes, dtype), dtype).text


def kernel(cell: Cell, sizes: Mapping[str, int], dtype: torch.dtype, text: str) -> Kernel:
    """The kernel of a cell; Triton keeps what it compiles.

    Raises:
        Unsupported: the cell leaves the subset that compiles.
        Unbuilt: there is no Triton, or one that is too old.
    """
    _require_triton()
    return Kernel(step(cell, sizes, dtype), title(cell, sizes, dtype), dtype)


def one_step(cell: Cell, sizes: Mapping[str, int], dtype: torch.dtype, text: str) -> None:
    """None of its own: what a launch costs is more than one step saves."""


def report(cell: Cell, sizes: Mapping[str, int], dtype: torch.dtype, chip: str, heads: int) -> str:
    """Grid, warps, registers, spills and shared memory of both kernels for so many heads, and their source."""
    from fastweights.compiler.targets.triton.occupancy import choose, target_of

    _require_triton()
    made = sourced(step(cell, sizes, dtype), title(cell, sizes, dtype), dtype, heads)
    how = f"{made.cuts} of {made.rows} rows a head" if made.cut else "one a head"
    lines = [f"{made.title}, {heads} heads on {chip}: {heads * made.cuts} programs, {how}"]
    for way in WAYS:
        found = choose(made, way, target_of(chip))
        registers = f"{found.registers} registers a thread, {found.spills} bytes spilt"
        lines.append(f"  {way:<8}  {found.warps} warps, {registers}, {found.shared} bytes shared")
    return "\n".join([*lines, "", made.text])


def _require_triton() -> None:
    reason = missing_requirement()
    if reason:
        raise Unbuilt(reason)


def step(cell: Cell, sizes: Mapping[str, int], dtype: torch.dtype) -> Step:
    """A cell's step and its gradient, lowered."""
    return alone(lambda: lower(trace(cell, dict(sorted(sizes.items())), dtype)))
