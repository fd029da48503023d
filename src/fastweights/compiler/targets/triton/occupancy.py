"""What the assembler makes of a kernel on a chip, which need not be here; and how many warps a program has.

Warps follow from what the assembler reports, so that they are the same on every machine: as few as hold the state in
registers, since warps that wait for each other at every sum cost more than they bring; more where numbers spill.
"""

import re
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import torch

from fastweights.compiler.errors import Unbuilt
from fastweights.compiler.targets.triton.access_patterns import padded, tile_size
from fastweights.compiler.targets.triton.module import loaded
from fastweights.compiler.targets.triton.source import FLAGS, SIZES, Source
from fastweights.core.source_location import FAULTS

MOST = 16
"""Warps of a program, at most."""
NUMBERS = 32
"""Of the largest leaf of a state, a thread holds about so many."""
OPTIONS = {"num_stages": 1, "enable_fp_fusion": True}
"""Options of every build. Fused multiply-add is the default up to Triton 3.9, which warns that 3.10 turns it off."""
POINTERS = {torch.float32: "*fp32", torch.float64: "*fp64"}


@dataclass(frozen=True)
class Assembled:
    """A kernel on a chip: registers of a thread, bytes of them that spill, and bytes of memory that warps share."""

    warps: int
    registers: int
    spills: int
    shared: int


def target_of(chip: str) -> Any:
    """What Triton calls a chip."""
    from triton.backends.compiler import GPUTarget

    if chip.startswith("sm_"):
        return GPUTarget("cuda", int(chip.removeprefix("sm_")), 32)
    return GPUTarget("hip", chip, 64)


def chip_here() -> Any:
    """The one that is current."""
    from triton.runtime import driver

    return driver.active.get_current_target()


@lru_cache(1000)
def choose(source: Source, way: str, target: Any) -> Assembled:
    """The fewest warps that spill the least."""
    return fewest(partial(assemble, source, way, target), _fewest(source, target))


def fewest(assemble: Callable[[int], Assembled], warps: int) -> Assembled:
    """With the fewest warps that spill the least, from so many on."""
    tried = [assemble(warps)]
    while tried[-1].spills and tried[-1].warps < MOST:
        tried.append(assemble(2 * tried[-1].warps))
    return min(tried, key=lambda a: (a.spills, a.warps))


def _fewest(source: Source, target: Any) -> int:
    """Warps that hold the largest leaf of the state in as many registers as they have for it."""
    largest = max(tile_size(d.shape) for d in source.step.state.values()) // padded(source.cuts)
    return min(MOST, padded(max(1, largest // (NUMBERS * target.warp_size))))


def assemble(source: Source, way: str, target: Any, warps: int) -> Assembled:
    """Compiles one way over time, for a chip that need not be here.

    Raises:
        Unbuilt: the compiler fails.
    """
    types = dict.fromkeys(getattr(source, way), POINTERS[source.dtype])
    types |= {"reset": "*u8", "lengths": "*i64"} | dict.fromkeys((*source.strides, *SIZES), "i64")
    function = getattr(loaded(source.text), way)
    return assemble_function(function, types, dict.fromkeys(FLAGS, True), target, warps, source.title)


def assemble_function(
    function: Any, types: Mapping[str, str], constants: Mapping[str, Any], target: Any, warps: int, title: str
) -> Assembled:
    """The same of any function with arguments of these types and constants."""
    import triton
    from triton.compiler import ASTSource
    from triton.errors import TritonError

    aligned = {(n,): [["tt.divisibility", 16]] for n, kind in enumerate(types.values()) if kind[0] == "*"}
    signature = {**types, **dict.fromkeys(constants, "constexpr")}
    ast = ASTSource(fn=function, signature=signature, constexprs=dict(constants), attrs=aligned)
    try:
        made = triton.compile(ast, target=target, options={"num_warps": warps, **OPTIONS})
    except (TritonError, *FAULTS) as error:  # the passes of MLIR raise errors of Python
        what = " ".join(str(error).split())[:300]
        raise Unbuilt(f"Triton {triton.__version__} fails to compile {title} ({what})") from error
    reported = _of_amd(made.asm["amdgcn"]) if target.backend == "hip" else _of_nvidia(made.asm["cubin"])
    return Assembled(warps, *reported, made.metadata.shared)


def _of_nvidia(cubin: bytes) -> tuple[int, int]:
    """Registers and bytes of stack, from the table of resources in a binary."""
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
    found = re.search(pattern, text)
    assert found, f"{pattern} in {text}"
    return int(found[1])
