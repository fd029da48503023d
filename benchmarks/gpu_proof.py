"""Checks of the GPU kernels without a GPU: results under Triton's interpreter, and registers of the compiled code.

    python benchmarks/gpu_proof.py --output-dir docs/measurements

The script interprets the kernels of every cell, compares them with the float64 reference, and compiles them for
several chips. This takes about four hours on two cores. Results are stored in benchmarks/gpu_proof.json one by one,
and reused while the kernels, the code that compiles or checks them, and the version of Triton stay the same. After
Ctrl-C, the printed table has the stored results, and names those that are missing or outdated. The CSV file is written
when none is.
"""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from functools import cache, partial
from hashlib import sha256
from itertools import product
from pathlib import Path
from typing import Any

import torch
import triton

from csv_tables import write_tables
from fastweights import Cell
from fastweights.compiler.errors import Unbuilt
from fastweights.compiler.op import sizes_of
from fastweights.compiler.pipeline import passes
from fastweights.compiler.targets.cell_spec import CellSpec
from fastweights.compiler.targets.target import DIRECTIONS
from fastweights.compiler.targets.triton import occupancy as chips
from fastweights.compiler.targets.triton.source import TritonSource, sourced
from fastweights.core.files import write_atomically
from fastweights.testing import backends_of
from fastweights.testing.samples import Shape, sample_inputs, sample_params, sample_state
from names import one_of

ROOT = Path(__file__).parents[1]
CHECKS_FILE = ROOT / "tests" / "interpreted.py"
SOURCES = ROOT / "src" / "fastweights"
TARGET, CHUNKWISE = SOURCES / "compiler" / "targets" / "triton", SOURCES / "backends" / "chunkwise"
STATE_PASSING = CHUNKWISE / "triton"
COMPILING = TARGET / "occupancy.py"
"""The file that compiles kernels and chooses their number of warps."""
CHECKED = (CHECKS_FILE, TARGET, SOURCES / "testing")
"""The file and folders with code that all checks run."""
STORED = ROOT / "benchmarks" / "gpu_proof.json"
SIZES = (16, 32, 64)
CHIPS = ("sm_90", "sm_80", "sm_100", "gfx942")
"""Chips of the table: the first one at all sizes, the others at the smallest."""
MINUTES = 15
"""Time limit for the compilation of a kernel with all numbers of warps."""
HEADS = 1024
"""Heads of a whole batch: so many that no head is divided to fill a chip."""
CHECKS = (
    "equals_the_reference",
    "equals_the_reference_everywhere",
    "equals_the_reference_cut",
    "gradients_pass_two_layers",
)


CHUNKS = "chunks"
"""Name of the row for state passing, which all cells with an affine state share."""
CHECK_OF_CHUNKS = "chunks_equal_the_reference_everywhere"


def interpreted(checks: tuple[str, ...], name: str) -> dict[str, str]:
    """Results of checks of a cell."""
    return {check: _checked(check, name) for check in checks}


def _checked(check: str, name: str) -> str:
    environment = os.environ | {"TRITON_INTERPRET": "1"}
    command = [sys.executable, str(CHECKS_FILE), check, name]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=True)
    return done.stdout.strip().removeprefix(f"{name} ")


def assembled(name: str, size: int, chip: str) -> dict[str, Any]:
    """Facts on both kernels at K = V = size, each compiled in a process with a time limit."""
    facts: dict[str, Any] = {}
    for direction in DIRECTIONS:
        command = [sys.executable, __file__, "--one", name, str(size), chip, direction]
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60 * MINUTES)
            facts |= json.loads(done.stdout)
        except subprocess.TimeoutExpired:
            facts |= {direction: f"more than {MINUTES} minutes"}
    return {"cuts": 1} | facts


def one(name: str, size: int, chip: str, direction: str) -> dict[str, Any]:
    """Facts on the forward or backward kernel of a cell, and the number of programs per head."""
    if name == CHUNKS:
        from fastweights.backends.chunkwise.triton import state_passing

        return {direction: vars(state_passing.assembled(direction, size, torch.float32, chip))}
    source = source_of(name, size)
    try:
        return {"cuts": source.cuts, direction: vars(chips.choose(source, direction, chips.target_of(chip)))}
    except Unbuilt as error:
        return {"cuts": source.cuts, direction: f"does not build: {error}"}


@cache
def source_of(name: str, size: int) -> TritonSource:
    """The kernels of a cell at K = V = size in float32."""
    cell, shape = Cell.from_name(name), Shape(1, 1, 1, size, size)
    tensors = [*sample_inputs(cell, shape), *sample_state(cell, shape), *(sample_params(cell, shape) or ())]
    sizes = sizes_of(cell, tensors)
    title = CellSpec(cell, sizes, torch.float32).title
    return sourced(passes(cell, sizes, torch.float32), title, torch.float32, HEADS)


@cache
def version(cell: str, size: int, others: tuple[Path, ...]) -> str:
    """Digest of the code that a result depends on: kernels of a cell, their compiler, and other files and folders."""
    files = [COMPILING]
    for path in others:
        files += sorted(path.glob("*.py")) if path.is_dir() else [path]
    kernels = [source_of(cell, size).text] if cell else []
    texts = [*kernels, *(file.read_text(encoding="utf-8") for file in files)]
    return sha256("\0".join([triton.__version__, *texts]).encode()).hexdigest()[:16]


def affine_cells() -> list[str]:
    """The cells with an affine state."""
    return [name for name in Cell.names() if "chunkwise" in backends_of(Cell.from_name(name))]


def stored() -> dict[str, dict[str, Any]]:
    """The stored results by key: `version`, and `facts`."""
    return json.loads(STORED.read_text(encoding="utf-8")) if STORED.exists() else {}


def measure(names: list[str]) -> None:
    """Computes all results that are missing or outdated, one per core at a time."""
    results, wanted = stored(), tasks(names)
    known = current(wanted)
    missing = {key: task for key, task in wanted.items() if key not in known}
    print(f"{len(wanted) - len(missing)} of {len(wanted)} results are stored", flush=True)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        running = {pool.submit(make): key for key, (_, make) in missing.items()}
        try:
            for n, done in enumerate(as_completed(running), start=1):
                key = running[done]
                if error := done.exception():
                    print(f"{n} of {len(missing)}: {key} failed: {error}", flush=True)
                    continue
                results[key] = {"version": missing[key][0], "facts": done.result()}
                write_atomically(STORED, f"{json.dumps(dict(sorted(results.items())), indent=1)}\n".encode())
                print(f"{n} of {len(missing)}: {key}", flush=True)
        finally:
            pool.shutdown(cancel_futures=True)


def tasks(names: list[str]) -> dict[str, tuple[str, Callable[[], Any]]]:
    """Versions of all results of the table by key, and functions that compute them, the fastest first."""
    places = [(size, chip) for size in SIZES for chip in (CHIPS if size == SIZES[0] else CHIPS[:1])]
    results: dict[str, tuple[str, Callable[[], Any]]] = {}
    for (size, chip), name in product(places, names):
        code = version("", size, (STATE_PASSING,)) if name == CHUNKS else version(name, size, ())
        results[f"{name} {chip} {size}"] = code, partial(assembled, name, size, chip)
    for name in names:
        if name != CHUNKS:
            code = version(name, SIZES[0], CHECKED)
            results[f"{name} interpreted"] = code, partial(interpreted, CHECKS, name)
    for cell in affine_cells() if CHUNKS in names else ():
        code = version(cell, SIZES[0], (*CHECKED, CHUNKWISE, STATE_PASSING))
        results[f"{CHUNKS} interpreted {cell}"] = code, partial(interpreted, (CHECK_OF_CHUNKS,), cell)
    return results


def current(wanted: Mapping[str, tuple[str, Any]]) -> dict[str, Any]:
    """Stored facts of the wanted versions by key."""
    results = {key: result for key, result in stored().items() if key in wanted}
    return {key: result["facts"] for key, result in results.items() if result["version"] == wanted[key][0]}


def table(names: list[str], results: dict[str, Any]) -> str:
    """Table of the results as Markdown."""
    head = [
        "cell",
        "equals the reference",
        *(f"{CHIPS[0]}, {n}" for n in SIZES),
        *(f"{chip}, {SIZES[0]}" for chip in CHIPS[1:]),
    ]
    lines = [_row(head), _row(["---"] * len(head))]
    for name in sorted(names):
        right = "; ".join(_wrong(name, results)) or "yes"
        cells = [f"{name} {CHIPS[0]} {n}" for n in SIZES] + [f"{name} {chip} {SIZES[0]}" for chip in CHIPS[1:]]
        lines.append(_row([name, right, *(_cell(results[key]) if key in results else "not computed" for key in cells)]))
    return "\n".join(lines)


def _wrong(name: str, results: dict[str, Any]) -> Iterator[str]:
    """The checks of a row that fail or are not computed."""
    keys = [f"{CHUNKS} interpreted {cell}" for cell in affine_cells()] if name == CHUNKS else [f"{name} interpreted"]
    for key in keys:
        cell = f"{key.removeprefix(f'{CHUNKS} interpreted ')}: " if name == CHUNKS else ""
        if key not in results:
            yield f"{cell}not computed"
            continue
        yield from (f"{cell}{check}: {result}" for check, result in results[key].items() if result != "ok")


def _row(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _cell(facts: dict[str, Any]) -> str:
    kernels = [_kernel(facts[direction]) for direction in DIRECTIONS]
    cuts = f" ({facts['cuts']} programs)" if facts["cuts"] > 1 else ""
    return "; ".join(kernels) + cuts


def _kernel(facts: Any) -> str:
    if isinstance(facts, str):
        return facts.partition(":")[0]
    spills = f", **{facts['spills']} spilt**" if facts["spills"] else ""
    return f"{facts['warps']} x {facts['registers']}{spills}"


def main() -> None:
    """Measures, and writes the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    known = one_of("cell", (*Cell.names(), CHUNKS))
    parser.add_argument(
        "cells", nargs="*", type=known, metavar="CELL", help="cells whose results are computed (default: all)"
    )
    parser.add_argument("--output-dir", type=Path, metavar="DIR", help="folder for the table as a CSV file")
    parser.add_argument(
        "--one", nargs=4, metavar=("CELL", "SIZE", "CHIP", "DIRECTION"), help="one result to print as JSON"
    )
    options = parser.parse_args()
    if options.one:
        name, size, chip, direction = options.one
        print(json.dumps(one(name, int(size), chip, direction)))
        return
    everything = [*Cell.names(), CHUNKS]
    try:
        measure(options.cells or everything)
    except KeyboardInterrupt:
        print("stopped: the table has the results so far")
    wanted = tasks(everything)
    results = current(wanted)
    text = table(everything, results)
    print(text)
    if options.output_dir and len(results) < len(wanted):
        print(f"{options.output_dir} is unchanged: {len(wanted) - len(results)} results are missing")
    elif options.output_dir:
        write_tables(options.output_dir, ["gpu-kernels"], text)


if __name__ == "__main__":
    main()
