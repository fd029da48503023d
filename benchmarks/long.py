"""Times the chunkwise and the compiled backend on a long sequence: B 1, T 65536, H 4, K 64.

    python benchmarks/long.py                                # one cell of each affine form
    python benchmarks/long.py delta gla --threads 1
    python benchmarks/long.py --output-dir docs/measurements

The table has ratios of CPU time in one run. Backends alternate. A time is the shorter of two calls after a warm-up.
"""

import argparse
import time
from functools import partial
from pathlib import Path
from typing import Any

import torch

from csv_tables import write_tables
from fastweights import Cell
from fastweights.testing.samples import Shape, sample_inputs, sample_params
from names import one_of
from scan import Run, cell_run, forward, forward_backward, saved_bytes

NAMES = ["sum", "delta", "gated-delta", "delta-product", "gla", "kda", "mlstm"]
LONG, SHORT = Shape(1, 1 << 16, 4, 64, 64), Shape(1, 1 << 12, 4, 64, 64)
BACKENDS = ["compiled", "chunkwise"]


def seconds(calls: list[Any]) -> list[float]:
    """CPU seconds of calls that alternate."""
    rounds = [[_seconds(call) for call in calls] for _ in range(3)][1:]
    return [min(times) for times in zip(*rounds, strict=True)]


def _seconds(call: Any) -> float:
    start = time.process_time()
    call()
    return time.process_time() - start


def row(name: str) -> str:
    """Row of the table for a cell."""
    cell = Cell.from_name(name)
    runs: list[Run] = [cell_run(cell, sample_params(cell, LONG, torch.float32), backend) for backend in BACKENDS]
    long, short = ([x.requires_grad_() for x in sample_inputs(cell, s, torch.float32)] for s in (LONG, SHORT))
    forwards = seconds([partial(forward, run, long) for run in runs])
    both = seconds([partial(forward_backward, run, long) for run in runs])
    shorter = seconds([partial(forward_backward, run, short) for run in runs])
    input_bytes = sum(x.nbytes for x in long)
    ratios = [forwards[1] / forwards[0], both[1] / both[0], *(a / b for a, b in zip(both, shorter, strict=True))]
    ratios += [saved_bytes(run, long) / input_bytes for run in runs]
    return f"| {name} | {' | '.join(f'{ratio:.2f}' for ratio in ratios)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    default, known = " ".join(NAMES), one_of("cell", Cell.names())
    parser.add_argument(
        "names", nargs="*", default=NAMES, type=known, metavar="CELL", help=f"names of cells (default: {default})"
    )
    parser.add_argument("--threads", type=int, default=1, help="number of CPU threads (default: %(default)s)")
    parser.add_argument("--output-dir", type=Path, metavar="DIR", help="folder for the table as a CSV file")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    lines = [
        "| cell | chunkwise / compiled: forward | forward + backward | 16 times T: compiled | chunkwise "
        "| stored besides the inputs: compiled | chunkwise |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    for name in options.names:
        lines.append(row(name))
        print(lines[-1], flush=True)
    if options.output_dir:
        write_tables(options.output_dir, ["long-sequence"], "\n".join(lines))


if __name__ == "__main__":
    main()
