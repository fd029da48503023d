"""Compiles kernels for a chip, which need not be present, and chooses the number of warps.

The choice follows from the reported registers, so that it is the same on every machine. It is the smallest number of
warps that hold the state in registers, because warps wait for each other at every sum; more if registers spill.
"""

import linecache
import re
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from hashlib import sha256
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from fastweights.compiler.errors import Unbuilt
from fastweights.compiler.targets.triton.access_patterns import padded, tile_size
from fastweights.compiler.targets.triton.source import SIZES, TritonSource
from fastweights.core.source_location import FAULTS

MOST = 16
"""Largest number of warps of a program."""
NUMBERS = 32
"""Number of elements of the largest state that a thread holds."""
OPTIONS = {"num_stages": 1, "enable_fp_fusion": True}
"""Options of every build. Fused multiply-add is the default up to Triton 3.9, which warns that 3.10 turns it off."""
POINTERS = {torch.float32: "*fp32", torch.float64: "*fp64", torch.bfloat16: "*bf16", torch.float16: "*fp16"}


@dataclass(frozen=True)
class Assembled:
    """The resources of a compiled kernel: registers per thread, bytes spilt per thread, and bytes of shared memory.

    `loads_ahead` is whether a backward pass over time loads the state one step ahead.
    """

    warps: int
    registers: int
    spills: int
    shared: int
    loads_ahead: bool = True


def target_of(chip: str) -> Any:
    """Triton's target for the name of a chip."""
    from triton.backends.compiler import GPUTarget

    if chip.startswith("sm_"):
        return GPUTarget("cuda", int(chip.removeprefix("sm_")), 32)
    return GPUTarget("hip", chip, 64)


def chip_here() -> Any:
    """Triton's target for the current chip."""
    from triton.runtime import driver

    return driver.active.get_current_target()


@lru_cache(1000)
def choose(source: TritonSource, kernel: str, target: Any) -> Assembled:
    """The compiled kernel with the fewest spills, and among these with the fewest warps.

    Loading the state ahead takes registers, and must not cost spills or warps. If it spills, it is compiled once more,
    with the number of warps that is best without it: kernels that spill take up to a minute each.
    """
    build, least = partial(assemble, source, kernel, target), _fewest(source, target)
    if kernel != "backward":
        return fewest(build, least)
    ahead = build(least)
    if not ahead.spills:
        return ahead
    late = fewest(partial(build, loads_ahead=False), least)
    ahead = build(late.warps)
    return ahead if ahead.spills <= late.spills else late


def fewest(assemble: Callable[[int], Assembled], warps: int) -> Assembled:
    """The result of `assemble` with the fewest spills and warps, starting from a number of warps."""
    tried = [assemble(warps)]
    while tried[-1].spills and tried[-1].warps < MOST:
        tried.append(assemble(2 * tried[-1].warps))
    return min(tried, key=lambda a: (a.spills, a.warps))


def _fewest(source: TritonSource, target: Any) -> int:
    """The number of warps that hold the largest state in registers."""
    largest = max(tile_size(d.shape) for d in source.step.state.values()) // padded(source.cuts)
    return min(MOST, padded(max(1, largest // (NUMBERS * target.warp_size))))


def assemble(
    source: TritonSource, kernel: str, target: Any, warps: int, loads_ahead: bool = True, uses_all: bool = True
) -> Assembled:
    """Compiles a kernel for a chip that need not be present. With `uses_all`, it has resets and lengths.

    Raises:
        Unbuilt: The compiler fails.
    """
    kinds = {"reset": "*u8", "lengths": "*i64"}
    types = {name: kinds.get(name, POINTERS[source.dtype]) for name in source.tensors(kernel)}
    types |= dict.fromkeys((*source.strides, *SIZES), "i64")
    function = getattr(loaded(source.text), kernel)
    flags = {"KEEP": True, "RESET": uses_all, "LENGTHS": uses_all, "AHEAD": loads_ahead}
    assembled = assemble_function(function, types, flags, target, warps, source.title)
    return replace(assembled, loads_ahead=loads_ahead)


def assemble_function(
    function: Any, types: Mapping[str, str], constants: Mapping[str, Any], target: Any, warps: int, title: str
) -> Assembled:
    """Compiles a function with arguments of some types, and with constants."""
    import triton
    from triton.compiler import ASTSource
    from triton.errors import TritonError

    aligned = {(n,): [["tt.divisibility", 16]] for n, kind in enumerate(types.values()) if kind[0] == "*"}
    signature = {**types, **dict.fromkeys(constants, "constexpr")}
    ast = ASTSource(fn=function, signature=signature, constexprs=dict(constants), attrs=aligned)
    try:
        compiled = triton.compile(ast, target=target, options={"num_warps": warps, **OPTIONS})
    except (TritonError, *FAULTS) as error:  # the passes of MLIR raise errors of Python
        reason = " ".join(str(error).split())[:300]
        raise Unbuilt(f"Triton {triton.__version__} fails to compile {title} ({reason})") from error
    reported = _of_amd(compiled.asm["amdgcn"]) if target.backend == "hip" else _of_nvidia(compiled.asm["cubin"])
    return Assembled(warps, *reported, compiled.metadata.shared)


def _of_nvidia(cubin: bytes) -> tuple[int, int]:
    """The registers and the bytes of stack, from the resource table of a binary."""
    import triton

    tool = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        report = subprocess.run([tool, "-res-usage", file.name], capture_output=True, text=True, check=True).stdout
    return _number(r"REG:(\d+)", report), _number(r"STACK:(\d+)", report)


def _of_amd(assembly: str) -> tuple[int, int]:
    return _number(r"\.vgpr_count:\s+(\d+)", assembly), _number(r"\.private_segment_fixed_size:\s+(\d+)", assembly)


def _number(pattern: str, text: str) -> int:
    match = re.search(pattern, text)
    assert match, f"{pattern} in {text}"
    return int(match[1])


@lru_cache(1000)
def loaded(text: str) -> ModuleType:
    """The module of a text. Triton reads the text of functions from Python's line cache, so there is no file."""
    module = ModuleType(f"fastweights_kernel_{sha256(text.encode()).hexdigest()[:24]}")
    module.__file__ = f"<{module.__name__}>"
    linecache.cache[module.__file__] = (len(text), None, text.splitlines(True), module.__file__)
    exec(compile(text, module.__file__, "exec"), vars(module))
    return module
