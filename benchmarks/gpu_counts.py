"""Counts what a time step of the recurrent GPU kernels costs. No GPU is needed.

    python benchmarks/gpu_counts.py                               # writes docs/measurements/gpu-counts.csv
    python benchmarks/gpu_counts.py --label before                # replaces the rows with this label, keeps the others
    python benchmarks/gpu_counts.py srwm --chips sm_90 --sizes 64 # only these, printed

compiles the kernels of recurrent cells in float32 for chips that need not be here, for long sequences and
calls without resets and lengths. Registers, spills and warps are those of the kernel. For chips of NVIDIA, the
instructions of a warp in the loop of a pass are counted: all, and of these the loads and stores in memory, and the
shuffles between threads. One run of the loop is one time step of one head. `kept bytes` are the bytes that the
recompute pass writes per step and head, `prepared bytes` those of the tensors that are computed ahead.
"""

import argparse
import csv
import io
import re
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from functools import lru_cache
from itertools import product
from pathlib import Path
from typing import Any

import torch
import triton

from fastweights import Cell
from fastweights.backends.chunkwise.lowering import RecurrentStage, lowering_for
from fastweights.compiler.op import sizes_of
from fastweights.compiler.pipeline import passes
from fastweights.compiler.targets.cell_spec import CellSpec
from fastweights.compiler.targets.triton import occupancy
from fastweights.compiler.targets.triton.source import TritonSource, sourced
from fastweights.core.files import write_atomically
from fastweights.testing.samples import Shape, sample_inputs, sample_params, sample_state
from names import one_of

FILE = Path(__file__).parents[1] / "docs" / "measurements" / "gpu-counts.csv"
CELLS = ("delta-rnn", "recurrent-delta-net", "srwm", "delta-lstm")
CHIPS = ("sm_90", "sm_80", "gfx942")
HEADS = (1024, 256)
"""Heads of a whole batch: many, and few. With few heads, tensors are computed ahead."""
COUNTED = {"loads": r"\bLDG?\.", "stores": r"\bSTG?\.", "shuffles": r"\bSHFL\."}
"""Instructions by their names in the disassembly."""
PASSES = {"prepare": ("prepare",), "forward": ("forward",), "backward": ("recompute", "backward")}
"""The passes of every kernel, in the order of their loops."""
COLUMNS = (
    "label",
    "cell",
    "size",
    "heads",
    "chip",
    "pass",
    "warps",
    "registers",
    "spills",
    "loads_ahead",
    "instructions",
    *COUNTED,
)
BYTES = ("kept bytes", "prepared bytes")

Row = dict[str, Any]


def kernels(name: str, size: int, heads: int) -> Iterator[tuple[str, TritonSource]]:
    """Source of a cell at K = V = size, and source of the loop that remains besides chunks of its affine part."""
    cell, shape = Cell.from_name(name), Shape(1, 1, 1, size, size)
    operands = [*sample_inputs(cell, shape), *sample_state(cell, shape), *(sample_params(cell, shape) or ())]
    sizes = sizes_of(cell, operands)
    yield name, source(cell, sizes, heads)
    lowering = lowering_for(cell.key, tuple(sizes.items()), torch.float32)
    for stage in () if isinstance(lowering, str) else lowering.stages:
        if isinstance(stage, RecurrentStage):
            yield f"{name}, loop of chunks", source(stage.cell, {}, heads)


def source(cell: Cell, sizes: Mapping[str, int], heads: int) -> TritonSource:
    """The source of a cell."""
    spec = CellSpec(cell, sizes, torch.float32)
    return sourced(passes(cell, spec.sizes, spec.dtype), spec.title, spec.dtype, heads)


def rows(source: TritonSource, chip: str) -> Iterator[Row]:
    """Counts of every pass of a source, and the registers of its kernel."""
    sizes = dict(zip(BYTES, (4 * source.chunk_numbers, 4 * source.prepared_numbers), strict=True))
    for kernel, passes_of in PASSES.items():
        if f"def {kernel}(" in source.text:
            best, binary = assembled(source, kernel, chip)
            counts = counted(binary) if binary else [{}] * len(passes_of)
            for name, count in zip(passes_of, counts, strict=True):
                yield {"pass": name, "chip": chip} | vars(best) | count | sizes


def assembled(source: TritonSource, kernel: str, chip: str) -> tuple[Any, bytes]:
    """Kernel without resets and lengths, with its number of warps, and its binary for chips of NVIDIA."""
    target, binaries, report = occupancy.target_of(chip), list[bytes](), occupancy._of_nvidia
    chosen = occupancy.Assembled(1, 0, 0, 0) if kernel == "prepare" else occupancy.choose(source, kernel, target)

    def kept(cubin: bytes) -> tuple[int, int]:
        binaries.append(cubin)
        return report(cubin)

    occupancy._of_nvidia = kept
    try:
        best = occupancy.assemble(source, kernel, target, chosen.warps, chosen.loads_ahead, uses_all=False)
    finally:
        occupancy._of_nvidia = report
    return best, binaries[-1] if binaries else b""


def counted(binary: bytes) -> list[Row]:
    """Instructions by kind of every innermost loop in the order of the code, or of the whole code without a loop."""
    tool = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "nvdisasm"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(binary)
        file.flush()
        text = subprocess.run([tool, "-c", file.name], capture_output=True, text=True, check=True).stdout
    lines, labels, loops = list[str](), dict[str, int](), list[tuple[int, int]]()
    for line in text.splitlines():
        if label := re.match(r"(\.L_x_\d+):", line):
            labels[label[1]] = len(lines)
        elif re.match(r"\s+/\*[0-9a-f]{4,}\*/", line) and "NOP" not in line:
            target = re.search(r"BRA.*`\((\.L_x_\d+)\)", line)
            if target and labels.get(target[1], len(lines)) < len(lines):
                loops.append((labels[target[1]], len(lines) + 1))
            lines.append(line)
    inner = [a for a in loops if not any(b != a and a[0] <= b[0] and b[1] <= a[1] for b in loops)]
    return [_kinds(lines[start:end]) for start, end in sorted(inner) or [(0, len(lines))]]


def _kinds(lines: list[str]) -> Row:
    counts = {kind: sum(bool(re.search(pattern, line)) for line in lines) for kind, pattern in COUNTED.items()}
    return {"instructions": len(lines)} | counts


@lru_cache
def old_rows() -> list[Row]:
    """The rows of the file."""
    return list(csv.DictReader(FILE.read_text(encoding="utf-8").splitlines())) if FILE.exists() else []


def main() -> None:
    """Counts, prints, and writes the rows of all cells."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    known = one_of("cell", tuple(Cell.names()))
    parser.add_argument("cells", nargs="*", type=known, metavar="CELL", help=f"cells (default: {' '.join(CELLS)})")
    parser.add_argument("--chips", nargs="+", default=CHIPS, help=f"chips (default: {' '.join(CHIPS)})")
    parser.add_argument("--sizes", nargs="+", type=int, default=[16], help="K = V (default: 16)")
    parser.add_argument("--label", default="now", help="label of the rows (default: now)")
    options = parser.parse_args()
    made = list[Row]()
    for name in options.cells or CELLS:
        for size, heads in product(options.sizes, HEADS):
            for (title, made_of), chip in product(kernels(name, size, heads), options.chips):
                for row in rows(made_of, chip):
                    made.append({"label": options.label, "cell": title, "size": size, "heads": heads} | row)
                    print(*(f"{key}={value}" for key, value in made[-1].items()), flush=True)
    if not options.cells:
        write([row for row in old_rows() if row["label"] != options.label] + made)


def write(table: list[Row]) -> None:
    """Writes the file."""
    text = io.StringIO()
    writer = csv.DictWriter(text, (*COLUMNS, *BYTES), restval="", extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    writer.writerows(table)
    write_atomically(FILE, text.getvalue().encode())


if __name__ == "__main__":
    main()
