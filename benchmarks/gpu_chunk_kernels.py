"""Compiles the fused chunk kernels without a GPU, and lists their registers and spills.

    python benchmarks/gpu_chunk_kernels.py --output-dir docs/measurements

This takes ten minutes on two cores. K is the width of one state; a matrix mixes two states. Results depend on the
version of Triton, not on the machine.
"""

import argparse
from itertools import product
from pathlib import Path

import torch
import triton

from csv_tables import write_tables
from fastweights.backends.chunkwise.fused_scan import FusedForm
from fastweights.backends.chunkwise.triton.fused_scan import KERNELS, assembled
from fastweights.compiler.targets.target import CHIPS
from fastweights.compiler.targets.triton.occupancy import Assembled

SIZES = (16, 64, 128)
DECAYS = {
    "one number": (1, lambda size: 1),
    "per column": (1, lambda size: size),
    "matrix": (2, lambda size: 4),
    "matrix per column": (2, lambda size: 4 * size),
}
"""Number of states, and numbers of the decay per time step."""
INPUTS = ("bfloat16", "float32")


def row(size: int, decay: str, inputs: str, chip: str) -> str:
    """A line of the table: warps x registers per thread of every kernel, and the bytes that spill."""
    states, numbers = DECAYS[decay]
    form = FusedForm(states * size, size, numbers(size), states, 1, True, inputs == INPUTS[0])
    cells = [entry(assembled(name, form, torch.float32, chip)) for name in KERNELS]
    # `join` does not depend on the decay.
    cells.append(entry(assembled("join", form, torch.float32, chip)) if decay == "one number" else "")
    return f"| {' | '.join((chip, str(size), decay, inputs, *cells))} |"


def entry(kernel: Assembled) -> str:
    """The warps, registers and spills of a kernel."""
    return f"{kernel.warps} x {kernel.registers}" + (f", {kernel.spills} spilt" if kernel.spills else "")


def main() -> None:
    """Compiles, and writes the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output-dir", type=Path, metavar="DIR", help="folder for the table as a CSV file")
    options = parser.parse_args()
    lines = [
        f"| {' | '.join(('chip', 'K = V', 'decay', 'inputs', *KERNELS, 'join'))} |",
        f"|{'---|' * (5 + len(KERNELS))}",
    ]
    places = [("sm_90", size) for size in SIZES] + [(chip, 64) for chip in CHIPS if chip != "sm_90"]
    for (chip, size), decay, inputs in product(places, DECAYS, INPUTS):
        if DECAYS[decay][0] == 2 and inputs == "float32":
            continue
        lines.append(row(size, decay, inputs, chip))
        print(lines[-1], flush=True)
    comment = "Warps x registers per thread; inputs in float32 multiply in three tf32 products."
    lines += ["", f"Triton {triton.__version__}. {comment}"]
    if options.output_dir:
        write_tables(options.output_dir, ["gpu-chunk-kernels"], "\n".join(lines))


if __name__ == "__main__":
    main()
