"""Time of the first call of a cell without a cached kernel.

    python benchmarks/first_call.py                                 # every cell
    python benchmarks/first_call.py delta srwm
    python benchmarks/first_call.py --output-dir docs/measurements

Every cell is built in an empty cache, for the forward pass, and for the forward and backward pass. The process has
built another cell before, so that modules are loaded. The second table compares with `torch.compile` of a handwritten
loop over a few time steps (`benchmarks/eager.py`). Seconds are CPU time of this process and of the C++ compiler.
"""

import argparse
import os
import platform
import statistics
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch._inductor import config as inductor

import eager
from csv_tables import write_tables
from fastweights import Cell, scan
from fastweights.compiler.targets.cpp.compiler import compiler
from fastweights.testing.samples import Shape, sample_inputs, sample_params
from names import one_of

SIZES = (16, 64)
"""K and V."""
STEPS = 16
"""Time steps of the loop under `torch.compile`. Its compilation time grows with them. Our kernels take any number."""

Run = Callable[[Cell, Any, Any], Tensor]


class Cost(NamedTuple):
    """Seconds of a first call: in total, and of the C++ compiler."""

    all: float
    compiler: float

    def __str__(self) -> str:
        return f"{self.all:.2f} ({self.compiler:.2f})"


def compiled(cell: Cell, inputs: Any, params: Any) -> Tensor:
    """Output of the compiled backend."""
    return scan(cell, inputs, params=params, backend="compiled")[0]


def by_torch(cell: Cell, inputs: Any, params: Any) -> Tensor:
    """Output of a new `torch.compile` of the loop, which compiles in this process without a cache."""
    torch.compiler.reset()
    loop = torch.compile(lambda *x: eager.loop(cell, type(inputs)(*x), params, eager.unbound, eager.STEPS[cell.name]))
    with inductor.patch(compile_threads=1, force_disable_caches=True):
        return loop(*inputs)


def first_call(run: Run, name: str, size: int, trains: bool, steps: int = 2) -> Cost:
    """Time of the first call of a cell. One time step would build a smaller kernel, so that the default is two."""
    cell, shape = Cell.from_name(name), Shape(1, steps, 1, size, size)
    inputs, params = sample_inputs(cell, shape, torch.float32), sample_params(cell, shape, torch.float32)
    inputs = type(inputs)(*(x.requires_grad_(trains) for x in inputs))
    with tempfile.TemporaryDirectory() as cache:
        os.environ.update(FASTWEIGHTS_CACHE=cache, TORCHINDUCTOR_CACHE_DIR=cache)
        before = os.times()
        y = run(cell, inputs, params)
        if trains:
            y.sum().backward()
        return _between(before, os.times())


def _between(before: os.times_result, after: os.times_result) -> Cost:
    own, children = ((after[n] - before[n]) + (after[n + 1] - before[n + 1]) for n in (0, 2))
    return Cost(own + children, children)


def tables(names: list[str]) -> Iterator[str]:
    """Lines of both tables: one row per cell, slowest first, with medians; one row per cell with a handwritten loop."""
    cases = [(size, trains) for size in SIZES for trains in (False, True)]
    first_call(compiled, "outer-product", 2, True)
    costs = {name: [first_call(compiled, name, *case) for case in cases] for name in names}
    slowest = sorted(costs.items(), key=lambda item: -item[1][-1].all)
    yield from _head("cell", *(f"K = V = {size}, to {'train' if trains else 'run'}" for size, trains in cases))
    yield from (_row(name, times) for name, times in slowest)
    yield _row("**median**", [_median(column) for column in zip(*costs.values(), strict=True)])
    yield ""
    yield from compared_with_torch({name: times for name, times in slowest if name in eager.STEPS})


def compared_with_torch(costs: dict[str, list[Cost]]) -> Iterator[str]:
    """Lines of the comparison with `torch.compile`, at the smallest size."""
    first_call(by_torch, "delta", 2, True)
    torchs = f"torch.compile, {STEPS} steps"
    yield from _head(f"cell, K = V = {SIZES[0]}", "to run", torchs, "to train", torchs)
    for name, (runs, trains, *_) in costs.items():
        of_torch = [first_call(by_torch, name, SIZES[0], backward, STEPS) for backward in (False, True)]
        yield _row(name, [runs, of_torch[0], trains, of_torch[1]])


def _head(*titles: str) -> list[str]:
    return [f"| {' | '.join(titles)} |", "|---|" + "---:|" * (len(titles) - 1)]


def _median(costs: tuple[Cost, ...]) -> Cost:
    return Cost(*(statistics.median(part) for part in zip(*costs, strict=True)))


def _row(name: str, costs: list[Cost]) -> str:
    return f"| {name} | {' | '.join(map(str, costs))} |"


def main() -> None:
    """Prints the tables, and writes them as CSV files."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "cells", nargs="*", type=one_of("cell", Cell.names()), metavar="CELL", help="names of cells (default: all)"
    )
    parser.add_argument("--output-dir", type=Path, metavar="DIR", help="folder for the tables as CSV files")
    options = parser.parse_args()
    torch.set_num_threads(1)
    names = options.cells or Cell.names()
    machine, command = platform.processor() or platform.machine(), " ".join(compiler())
    about = f"float32, {machine}, {command}, torch {torch.__version__}; in brackets the part of the C++ compiler."
    text = "\n".join([about, "", *tables(names)])
    print(text)
    if options.output_dir:
        write_tables(options.output_dir, ["first-call", "first-call-and-torch-compile"], text)


if __name__ == "__main__":
    main()
