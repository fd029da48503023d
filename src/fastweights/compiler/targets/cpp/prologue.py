"""The parts that all C++ sources have in common: the prologue, steps as functions, and the arguments of a kernel."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import torch

from fastweights.compiler.ir.nodes import ConstantTensor, volume
from fastweights.compiler.targets.arguments import NUMBERS, Argument, names
from fastweights.compiler.targets.cpp.loops import CppWriter, number
from fastweights.compiler.targets.cpp.outline import outlined
from fastweights.compiler.targets.cpp.schedule import Program

TYPES = {"real": "real", "bool": "bool", "int64": "int64_t"}
RUNTIME = Path(__file__).with_name("runtime.h")
EXPORTED = "FW_EXPORT"
"""The attribute of functions that other code calls."""
HAS_THREADS = f"""
{EXPORTED} int has_threads() {{
#ifdef _OPENMP
    return 1;
#else
    return 0;
#endif
}}"""
"""The function that returns whether a library was compiled with OpenMP, and so shares its work among threads."""
ON_STACK = 1 << 14
"""Largest number of bytes of a temporary array on the stack. Larger arrays are in the arena."""


class Functions:
    """Prints steps as functions. `scratch` is the number of elements that they need in the arena."""

    def __init__(self, dtype: torch.dtype, lanes: int) -> None:
        self.dtype, self.lanes = dtype, lanes
        self.scratch = 0

    def write(self, name: str, program: Program, arguments: Sequence[str], attribute: str = "") -> str:
        """The function of a step, behind the outlined functions that it calls."""
        out = CppWriter()
        self._temporaries(program, out)
        loops = outlined(name, program, self.lanes)
        out.lines += loops.lines
        taken = ", ".join([*arguments, "real* __restrict__ scratch"])
        head = f"\n{attribute}static void {name}({taken}) {{\n    (void)scratch;"
        return "\n".join([*loops.functions, head, *out.lines, "}"])

    def _temporaries(self, program: Program, out: CppWriter) -> None:
        offset = 0
        for buffer in program.local:
            size = volume(buffer.shape)
            if buffer.is_scalar:
                out.add(f"real {buffer.name};")
            elif size * self.dtype.itemsize <= ON_STACK:
                out.add(f"alignas(64) real {buffer.name}[{size}];")
            else:
                out.add(f"real* const {buffer.name} = scratch + {offset};")
                offset += padded(size)
        self.scratch = max(self.scratch, offset)


def beginning(title: str, dtype: torch.dtype) -> list[str]:
    """The code in front of all functions."""
    head = f"// {title}\n#define FASTWEIGHTS_DOUBLE {int(dtype == torch.float64)}\n"
    return [head + RUNTIME.read_text(encoding="utf-8"), "using fw::real;"]


def tables(programs: Sequence[Program]) -> list[str]:
    """The constant tensors of a cell."""
    buffers = {d: b for p in programs for d, b in p.buffers.items() if isinstance(d, ConstantTensor)}
    return [_table(b.name, d) for d, b in buffers.items()]


def _table(name: str, node: ConstantTensor) -> str:
    numbers = ", ".join(number(x) for x in node.numbers)
    return f"alignas(64) static const real {name}[{node.size}] = {{{numbers}}};"


def open_kernel(
    out: CppWriter,
    name: str,
    arguments: Sequence[Argument],
    fields: Mapping[str, Sequence[str]],
    linkage: str = EXPORTED,
) -> None:
    """Opens an exported function, and gives names to its arguments."""
    if linkage == EXPORTED:
        out.add(HAS_THREADS)
    out.open(f"\n{linkage} void {name}(void** p, const int64_t* n)")
    sizes = [f"{name} = n[{n}]" for n, name in enumerate(NUMBERS) if name != "threads"]
    out.add(f"const int64_t {', '.join(sizes)};")
    out.add(f"const int threads = int(n[{NUMBERS.index('threads')}]);")
    out.add(f"const int64_t* const strides = n + {len(NUMBERS)};")
    out.add("(void)strides; (void)T; (void)C; (void)B; (void)threads;")
    for argument in arguments:
        kind = ("const " if argument.is_input else "") + TYPES[argument.kind]
        for name in names(argument, fields):
            out.add(f"{kind}* const {name} = ({kind}*)*p++;")


def padded(size: int) -> int:
    """The number of elements rounded up, so that the next array starts at a cache line."""
    return (size + 15) // 16 * 16
