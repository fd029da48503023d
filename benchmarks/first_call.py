"""How long the first call of a new kernel takes: from a cell that was never compiled to its first result.

    python benchmarks/first_call.py                                 # every cell
    python benchmarks/first_call.py delta srwm --size 64
    python benchmarks/first_call.py --into docs/performance.md

Every cell is built in an empty cache, after another one, so that PyTorch has loaded what it traces with: once to be
run, and once to be trained, for which the way back is built beside the way forward. Seconds are those of the processor,
for this process and the C++ compiler: what a machine with one core and nothing else to do would take.
"""

import argparse
import os
import platform
import statistics
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import torch

from fastweights import Cell, scan
from fastweights.compiler.cpp import build
from fastweights.testing.samples import Shape, sample_inputs, sample_params
from page import put


class Cost(NamedTuple):
    """Seconds of a first call: all, and the part of the C++ compiler."""

    all: float
    compiler: float


def first_call(name: str, size: int, trains: bool) -> Cost:
    """Two steps of a cell whose kernel is not there: one alone would build a smaller one."""
    cell, shape = Cell.named(name), Shape(1, 2, 1, size, size)
    inputs, params = sample_inputs(cell, shape, torch.float32), sample_params(cell, shape, torch.float32)
    inputs = type(inputs)(*(x.requires_grad_(trains) for x in inputs))
    with tempfile.TemporaryDirectory() as cache:
        os.environ["FASTWEIGHTS_CACHE"] = cache
        return measured(lambda: scan(cell, inputs, params=params, backend="compiled"))


def measured(call: Callable[[], object]) -> Cost:
    """What a call costs."""
    before = os.times()
    call()
    after = os.times()
    own, children = ((after[n] - before[n]) + (after[n + 1] - before[n + 1]) for n in (0, 2))
    return Cost(own + children, children)


def table(names: list[str], size: int) -> str:
    """A row a cell, slowest first, and the medians."""
    first_call("outer-product", 2, True)
    costs = {name: [*first_call(name, size, False), *first_call(name, size, True)] for name in names}
    rows = [_row(name, seconds) for name, seconds in sorted(costs.items(), key=lambda item: -item[1][-2])]
    rows.append(_row("**median**", [statistics.median(seconds) for seconds in zip(*costs.values(), strict=True)]))
    head = ["| cell | to run | of this C++ compiler | to train | of this C++ compiler |", "|---|---:|---:|---:|---:|"]
    machine, command = platform.processor() or platform.machine(), " ".join(build.compiler())
    about = f"K = V = {size}, float32, {machine}, {command}, torch {torch.__version__}."
    return "\n".join([about, "", *head, *rows])


def _row(name: str, seconds: Sequence[float]) -> str:
    return f"| {name} | {' | '.join(f'{n:.2f}' for n in seconds)} |"


def main() -> None:
    """Prints the table, or puts it on a page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cells", nargs="*", metavar="CELL", help="default: all")
    parser.add_argument("--size", type=int, default=16, help="K and V, default: %(default)s")
    parser.add_argument("--into", type=Path, metavar="PAGE", help="put the table there")
    options = parser.parse_args()
    torch.set_num_threads(1)
    text = table(options.cells or Cell.names(), options.size)
    put(options.into, "first_call", text) if options.into else print(text)


if __name__ == "__main__":
    main()
