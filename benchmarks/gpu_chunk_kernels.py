"""Compiles the fused chunk kernels without a GPU, and lists their registers and spills.

    python benchmarks/gpu_chunk_kernels.py --output-dir docs/measurements

This takes a few minutes on two cores. Results depend on the version of Triton, not on the machine.
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

SIZES = (16, 64, 128)
DECAYS = ("one number", "per column")
INPUTS = ("bfloat16", "float32")


def row(size: int, decay: str, inputs: str, chip: str) -> str:
    """A line of the table: warps x registers per thread of every kernel, and the bytes that spill."""
    form = FusedForm(size, size, 1 if decay == DECAYS[0] else size, True, True, inputs == INPUTS[0])
    kernels = [assembled(name, form, torch.float32, chip) for name in KERNELS]
    cells = [f"{k.warps} x {k.registers}" + (f", {k.spills} spilt" if k.spills else "") for k in kernels]
    return f"| {' | '.join((chip, str(size), decay, inputs, *cells))} |"


def main() -> None:
    """Compiles, and writes the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output-dir", type=Path, metavar="DIR", help="folder for the table as a CSV file")
    options = parser.parse_args()
    lines = [f"| {' | '.join(('chip', 'K = V', 'decay', 'inputs', *KERNELS))} |", f"|{'---|' * (4 + len(KERNELS))}"]
    places = [("sm_90", size) for size in SIZES] + [(chip, 64) for chip in CHIPS if chip != "sm_90"]
    for (chip, size), decay, inputs in product(places, DECAYS, INPUTS):
        lines.append(row(size, decay, inputs, chip))
        print(lines[-1], flush=True)
    comment = "Warps x registers per thread; inputs in float32 multiply in three tf32 products."
    lines += ["", f"Triton {triton.__version__}. {comment}"]
    if options.output_dir:
        write_tables(options.output_dir, ["gpu-chunk-kernels"], "\n".join(lines))


if __name__ == "__main__":
    main()
