"""Measures the memory of the backward pass of one long sequence, B 1, T 1048576, H 4, K 64, in float32.

    python benchmarks/memory.py                       # the delta rule, compiled and chunkwise
    python benchmarks/memory.py titans --time 262144
    python benchmarks/memory.py --output-dir docs/measurements

Each row has its own process. "tensors" are the inputs, the output and the gradients of the inputs. "beyond" is the peak
memory of the process minus these tensors. Both are in GB of 2^30 bytes. Linux only.
"""

import argparse
import subprocess
import sys
from pathlib import Path

import torch

from csv_tables import write_tables
from fastweights import Cell, scan
from fastweights.testing.samples import Shape, sample_inputs, sample_params
from names import one_of

BACKENDS = ["compiled", "chunkwise"]
REPEATED = 256
"""Steps of the sample that the sequence repeats."""


def row(name: str, backend: str, T: int) -> str:
    """Row of the table for a cell on a backend, measured in this process."""
    torch.set_num_threads(1)
    cell, shape = Cell.from_name(name), Shape(1, REPEATED, 4, 64, 64)
    sample, params = sample_inputs(cell, shape, torch.float32), sample_params(cell, shape, torch.float32)
    _backward(cell, backend, [x.clone().requires_grad_() for x in sample], params)  # builds the kernels
    inputs = [x.repeat(1, T // REPEATED, *[1] * (x.ndim - 2)).requires_grad_() for x in sample]
    before = _resident("VmRSS")
    with open("/proc/self/clear_refs", "w") as reset:
        reset.write("5")  # the peak starts from here
    output = _backward(cell, backend, inputs, params)
    tensors = output + 2 * sum(x.nbytes for x in inputs) / 2**30
    beyond = _resident("VmHWM") - before - tensors + sum(x.nbytes for x in inputs) / 2**30
    return f"| {name} | {backend} | {T:,} | {tensors:.2f} | {beyond:.2f} |"


def _backward(cell: Cell, backend: str, inputs: list[torch.Tensor], params: object) -> float:
    """Runs the forward and backward pass. Returns the size of the output in GB."""
    y, _ = scan(cell, cell.Inputs(*inputs), params=params, backend=backend)
    y.backward(torch.ones(()).expand_as(y))
    return y.nbytes / 2**30


def _resident(key: str) -> float:
    """The memory of this process in GB."""
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith(key)) / 2**20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    known = one_of("cell", Cell.names())
    parser.add_argument(
        "names", nargs="*", default=["delta"], type=known, metavar="CELL", help="names of cells (default: delta)"
    )
    parser.add_argument(
        "--time",
        type=int,
        default=1 << 20,
        help=f"number of time steps, a multiple of {REPEATED} (default: %(default)s)",
    )
    parser.add_argument("--backend", choices=BACKENDS, help="single backend, measured in this process")
    parser.add_argument("--output-dir", type=Path, metavar="DIR", help="folder for the table as a CSV file")
    options = parser.parse_args()
    if options.backend:
        print(row(options.names[0], options.backend, options.time), flush=True)
        return
    lines = ["| cell | backend | steps | tensors GB | beyond GB |", "|---|---|---:|---:|---:|"]
    for name in options.names:
        for backend in BACKENDS:
            command = [sys.executable, __file__, name, "--backend", backend, "--time", str(options.time)]
            lines.append(subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip())
            print(lines[-1], flush=True)
    if options.output_dir:
        write_tables(options.output_dir, ["memory"], "\n".join(lines))


if __name__ == "__main__":
    main()
