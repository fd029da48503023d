"""The target for GPUs: Triton kernels for chips of NVIDIA and AMD."""

from collections.abc import Callable
from importlib.util import find_spec

import torch

from fastweights.compiler.errors import Unbuilt
from fastweights.compiler.ir.passes import Passes
from fastweights.compiler.ir.step_map import StepMap
from fastweights.compiler.targets.cell_spec import CellSpec
from fastweights.compiler.targets.target import DIRECTIONS
from fastweights.compiler.targets.triton.kernel import TritonKernel
from fastweights.compiler.targets.triton.map_kernel import TritonMap
from fastweights.compiler.targets.triton.source import sourced

OLDEST = (3, 6)
"""The oldest tested version of Triton."""
CAPABILITY = (8, 0)
"""The oldest compute capability of NVIDIA chips that Triton supports."""


def missing_requirement() -> str:
    """The reason why this machine can build no kernel, with a remedy; empty if it can."""
    if find_spec("triton") is None:
        return "there is no Triton. pip install 'fastweights[gpu]'"
    import triton

    version = triton.__version__
    if tuple(map(int, version.split(".")[:2])) < OLDEST:
        return f"Triton is {version}, and {'.'.join(map(str, OLDEST))} is needed. pip install 'fastweights[gpu]'"
    if torch.cuda.is_available() and torch.version.hip is None and torch.cuda.get_device_capability() < CAPABILITY:
        return f"{torch.cuda.get_device_name()} is older than what Triton compiles for: compute capability 8.0"
    return ""


def source(spec: CellSpec, passes: Passes) -> str:
    """The source text of a cell's kernels for many heads."""
    return sourced(passes, spec.title, spec.dtype).text


def kernel(spec: CellSpec, text: str, passes: Callable[[], Passes]) -> TritonKernel:
    """The kernel of a cell. Triton has a cache of its own, so `text` is not used.

    Raises:
        Unsupported: The cell leaves the subset of PyTorch that compiles.
        Unbuilt: Triton is not installed, or is too old.
    """
    _require_triton()
    return TritonKernel(passes(), spec.title, spec.dtype)


def one_step(spec: CellSpec, text: str, passes: Callable[[], Passes]) -> None:
    """None: a launch costs more time than a kernel for a single time step would save."""


def softmax(dtype: torch.dtype) -> None:
    """None: the operations of PyTorch compute it."""


def step_map(function: StepMap, title: str, dtype: torch.dtype) -> TritonMap:
    """The kernels of a function of one time step that run all time steps at once."""
    return TritonMap(function, title, dtype)


def report(spec: CellSpec, passes: Callable[[], Passes], chip: str, num_heads: int) -> str:
    """The grid, warps, registers, spills and shared memory of both kernels for a number of heads, and the source."""
    from fastweights.compiler.targets.triton.occupancy import choose, target_of

    _require_triton()
    kernels = sourced(passes(), spec.title, spec.dtype, num_heads)
    grid = f"{kernels.cuts} of {kernels.rows} rows a head" if kernels.cut else "one a head"
    lines = [f"{kernels.title}, {num_heads} heads on {chip}: {num_heads * kernels.cuts} programs, {grid}"]
    for name in DIRECTIONS:
        assembled = choose(kernels, name, target_of(chip))
        registers = f"{assembled.registers} registers a thread, {assembled.spills} bytes spilt"
        lines.append(f"  {name:<8}  {assembled.warps} warps, {registers}, {assembled.shared} bytes shared")
    return "\n".join([*lines, "", kernels.text])


def _require_triton() -> None:
    reason = missing_requirement()
    if reason:
        raise Unbuilt(reason)
