"""Compiles the fused chunk kernels without a GPU, and lists their registers and spills.

    python benchmarks/gpu_chunk_kernels.py --output-dir docs/measurements

This takes a quarter of an hour on two cores, and `--only TABLE` makes one of the tables. K is the width of one state; a
matrix mixes two states. Results depend on the version of Triton, not on the machine.
"""

import argparse
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import torch
import triton

from csv_tables import write_tables
from fastweights import Cell
from fastweights.backends.chunkwise.fused_scan import FusedForm
from fastweights.backends.chunkwise.step_functions import operand_maps
from fastweights.backends.chunkwise.triton.fused_scan import KERNELS, assembled
from fastweights.compiler.targets.target import CHIPS
from fastweights.compiler.targets.triton.occupancy import Assembled
from fastweights.compiler.targets.triton.target import step_map

SIZES = (16, 64, 128)
DECAYS = {
    "one number": (1, lambda size: 1),
    "per column": (1, lambda size: size),
    "matrix": (2, lambda size: 4),
    "matrix per column": (2, lambda size: 4 * size),
}
"""Number of states, and numbers of the decay per time step."""
INPUTS = ("bfloat16", "float32")
CELLS = ("delta", "gated-delta", "kda")
"""Cells whose operands are computed by a kernel."""
PLACES = [("sm_90", size) for size in SIZES] + [(chip, 64) for chip in CHIPS if chip != "sm_90"]
"""The chips, and K = V."""
SHORT = [("sm_90", 16), *((chip, 32) for chip in CHIPS)]
"""The same for short sequences with one program per head."""


def row(size: int, decay: str, inputs: str, chip: str) -> str:
    """A line of the table: warps x registers per thread of every kernel, and the bytes that spill."""
    states, numbers = DECAYS[decay]
    form = FusedForm(states * size, size, numbers(size), states, 1, True, inputs == INPUTS[0])
    cells = [entry(assembled(name, form, torch.float32, chip)) for name in KERNELS]
    # `join` does not depend on the decay.
    cells.append(entry(assembled("join", form, torch.float32, chip)) if decay == "one number" else "")
    return f"| {' | '.join((chip, str(size), decay, inputs, *cells))} |"


def chunk_kernels() -> Iterator[str]:
    """The kernels of sequences of any length."""
    yield f"| {' | '.join(('chip', 'K = V', 'decay', 'inputs', *KERNELS, 'join'))} |"
    yield f"|{'---|' * (5 + len(KERNELS))}"
    for (chip, size), decay, inputs in product(PLACES, DECAYS, INPUTS):
        if DECAYS[decay][0] == 1 or inputs != "float32":
            yield row(size, decay, inputs, chip)
    yield ""
    comment = "Warps x registers per thread; inputs in float32 multiply in three tf32 products."
    yield f"Triton {triton.__version__}. {comment}"


def short_sequences() -> Iterator[str]:
    """The kernels of sequences of at most four chunks that do all the work of a pass."""
    yield "| chip | K = V | decay | inputs | forward | backward |"
    yield f"|{'---|' * 6}"
    for (chip, size), decay, inputs in product(SHORT, list(DECAYS)[:2], INPUTS):
        form = FusedForm(size, size, DECAYS[decay][1](size), 1, 1, True, inputs == INPUTS[0])
        kernels = (assembled(name, form, torch.float32, chip, alone=True) for name in ("walk", "back"))
        yield f"| {' | '.join((chip, str(size), decay, inputs, *map(entry, kernels)))} |"
    yield ""
    yield f"Triton {triton.__version__}. Warps x registers per thread."


def operand_kernels() -> Iterator[str]:
    """The kernels that compute the operands of fused scans, for inputs in bfloat16."""
    yield "| cell | chip | K = V | state | computed operands | forward | backward |"
    yield f"|{'---|' * 7}"
    for cell, (chip, size) in product(CELLS, PLACES[1:]):
        for states, function, dtypes in operand_maps(Cell.from_name(cell), {"K": size, "V": size}, torch.bfloat16):
            kernel = step_map(function, cell, torch.float32)
            kernels = (kernel.assembled(name, dtypes, chip) for name in ("forward", "backward"))
            cells = (cell, chip, str(size), states, str(len(function.computed)), *map(entry, kernels))
            yield f"| {' | '.join(cells)} |"
    yield ""
    yield f"Triton {triton.__version__}. Warps x registers per thread; inputs in bfloat16."


TABLES = {
    "gpu-chunk-kernels": chunk_kernels,
    "gpu-short-sequences": short_sequences,
    "gpu-operand-kernels": operand_kernels,
}


def entry(kernel: Assembled) -> str:
    """The warps, registers and spills of a kernel."""
    return f"{kernel.warps} x {kernel.registers}" + (f", {kernel.spills} spilt" if kernel.spills else "")


def main() -> None:
    """Compiles, and writes the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output-dir", type=Path, metavar="DIR", help="folder for the tables as CSV files")
    parser.add_argument("--only", choices=TABLES, help="one of the tables")
    options = parser.parse_args()
    for name in [options.only] if options.only else TABLES:
        lines = []
        for line in TABLES[name]():
            lines.append(line)
            print(line, flush=True)
        if options.output_dir:
            write_tables(options.output_dir, [name], "\n".join(lines))


if __name__ == "__main__":
    main()
