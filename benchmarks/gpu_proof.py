"""What can be shown of the GPU kernels without a GPU: what they mean, and what assemblers make of them.

    python benchmarks/gpu_proof.py --output-dir docs/measurements

interprets the kernels of every cell and compares them with the float64 reference, and compiles them for chips that need
not be here. It takes about half an hour on two cores; results are kept in benchmarks/gpu_proof.json as they come, and
what is there is not made again (`--again` makes all anew). After Ctrl-C, the table has what there is.
"""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, as_completed
from functools import partial
from pathlib import Path
from typing import Any

import torch

from csv_tables import write_tables
from fastweights import Cell
from fastweights.compiler.errors import Unbuilt
from fastweights.compiler.op import sizes_of
from fastweights.compiler.pipeline import passes
from fastweights.compiler.targets.cell_spec import CellSpec
from fastweights.compiler.targets.target import DIRECTIONS
from fastweights.compiler.targets.triton import occupancy as chips
from fastweights.compiler.targets.triton.source import sourced
from fastweights.core.files import write_atomically
from fastweights.testing import backends_of
from fastweights.testing.samples import Shape, sample_inputs, sample_params, sample_state
from names import one_of

ROOT = Path(__file__).parents[1]
KEPT = ROOT / "benchmarks" / "gpu_proof.json"
SIZES = (16, 32, 64)
CHIPS = ("sm_90", "sm_80", "sm_100", "gfx942")
"""The first one at all sizes, the others at the smallest."""
MINUTES = 15
"""That a kernel is given to compile, with all the warps that are tried."""
HEADS = 1024
"""Heads of all members of a batch: enough that no head is cut to fill a chip."""
CHECKS = (
    "equals_the_reference",
    "equals_the_reference_everywhere",
    "equals_the_reference_cut",
    "gradients_pass_two_layers",
)


CHUNKS = "chunks"
"""A row of its own: the walk from chunk to chunk, which cells that are affine in their state have in common."""


def interpreted(name: str) -> dict[str, str]:
    """What every check says of a cell; of the walk from chunk to chunk, what one says of every cell that has it."""
    if name == CHUNKS:
        affine = [cell for cell in Cell.names() if "chunkwise" in backends_of(Cell.from_name(cell))]
        return {cell: _checked("chunks_equal_the_reference_everywhere", cell) for cell in affine}
    return {check: _checked(check, name) for check in CHECKS}


def _checked(check: str, name: str) -> str:
    environment = os.environ | {"TRITON_INTERPRET": "1"}
    script = str(ROOT / "tests" / "interpreted.py")
    command = [sys.executable, script, check, name]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=True)
    return done.stdout.strip().removeprefix(f"{name} ")


def assembled(name: str, size: int, chip: str) -> dict[str, Any]:
    """Both kernels at K = V = size, each in a process that is given up after a while."""
    found: dict[str, Any] = {}
    for way in DIRECTIONS:
        command = [sys.executable, __file__, "--one", name, str(size), chip, way]
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60 * MINUTES)
            found |= json.loads(done.stdout)
        except subprocess.TimeoutExpired:
            found |= {way: f"more than {MINUTES} minutes"}
    return {"cuts": 1} | found


def one(name: str, size: int, chip: str, way: str) -> dict[str, Any]:
    """One way over time of a cell, and how many programs a head has."""
    if name == CHUNKS:
        from fastweights.backends.chunkwise.triton import state_passing

        return {way: vars(state_passing.assembled(way, size, torch.float32, chip))}
    cell, shape = Cell.from_name(name), Shape(1, 1, 1, size, size)
    given = [*sample_inputs(cell, shape), *sample_state(cell, shape), *(sample_params(cell, shape) or ())]
    sizes = sizes_of(cell, given)
    title = CellSpec(cell, sizes, torch.float32).title
    source = sourced(passes(cell, sizes, torch.float32), title, torch.float32, HEADS)
    try:
        return {"cuts": source.cuts, way: vars(chips.choose(source, way, chips.target_of(chip)))}
    except Unbuilt as error:
        return {"cuts": source.cuts, way: f"does not build: {error}"}


def measure(names: list[str], again: bool) -> None:
    """Makes all results that are not in the file, as many at once as there are cores."""
    kept: dict[str, Any] = {} if again or not KEPT.exists() else json.loads(KEPT.read_text(encoding="utf-8"))
    missing = {key: make for key, make in _all(names).items() if key not in kept}
    total = len(kept) + len(missing)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        running = {pool.submit(make): key for key, make in missing.items()}
        try:
            for done in as_completed(running):
                kept[running[done]] = done.result()
                write_atomically(KEPT, f"{json.dumps(dict(sorted(kept.items())), indent=1)}\n".encode())
                print(f"{len(kept)} of {total}: {running[done]}", flush=True)
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def _all(names: list[str]) -> dict[str, Callable[[], Any]]:
    """Everything that the table needs, the quickest first."""
    places = [(size, chip) for size in SIZES for chip in (CHIPS if size == SIZES[0] else CHIPS[:1])]
    built = {f"{name} {chip} {size}": partial(assembled, name, size, chip) for size, chip in places for name in names}
    return built | {f"{name} interpreted": partial(interpreted, name) for name in names}


def table(kept: dict[str, Any]) -> str:
    """Markdown."""
    head = [
        "cell",
        "equals the reference",
        *(f"{CHIPS[0]}, {n}" for n in SIZES),
        *(f"{chip}, {SIZES[0]}" for chip in CHIPS[1:]),
    ]
    lines = [_row(head), _row(["---"] * len(head))]
    for name in sorted({key.split()[0] for key in kept}):
        checks = kept.get(f"{name} interpreted", {"not run by this command yet": ""})
        right = (
            "yes"
            if set(checks.values()) == {"ok"}
            else "; ".join(f"{c}: {v}" if v else c for c, v in checks.items() if v != "ok")
        )
        cells = [f"{name} {CHIPS[0]} {n}" for n in SIZES] + [f"{name} {chip} {SIZES[0]}" for chip in CHIPS[1:]]
        lines.append(_row([name, right, *(_cell(kept[key]) if key in kept else "not made yet" for key in cells)]))
    return "\n".join(lines)


def _row(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _cell(found: dict[str, Any]) -> str:
    ways = [_way(found[way]) for way in DIRECTIONS]
    cuts = f" ({found['cuts']} programs)" if found["cuts"] > 1 else ""
    return "; ".join(ways) + cuts


def _way(found: Any) -> str:
    if isinstance(found, str):
        return found.partition(":")[0]
    spills = f", **{found['spills']} spilt**" if found["spills"] else ""
    return f"{found['warps']} x {found['registers']}{spills}"


def main() -> None:
    """Measures, and writes the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    known = one_of("cell", (*Cell.names(), CHUNKS))
    parser.add_argument("cells", nargs="*", type=known, metavar="CELL", help="those to show it of now; default: all")
    parser.add_argument("--output-dir", type=Path, metavar="DIR", help="write the table there as a CSV file")
    parser.add_argument("--again", action="store_true", help="make all anew")
    parser.add_argument("--one", nargs=4, metavar=("CELL", "SIZE", "CHIP", "WAY"), help="print one result as JSON")
    options = parser.parse_args()
    if options.one:
        name, size, chip, way = options.one
        print(json.dumps(one(name, int(size), chip, way)))
        return
    try:
        measure(options.cells or [*Cell.names(), CHUNKS], options.again)
    except KeyboardInterrupt:
        print("stopped: the table has what there is")
    text = table(json.loads(KEPT.read_text(encoding="utf-8")))
    print(text)
    if options.output_dir:
        write_tables(options.output_dir, ["gpu-kernels"], text)


if __name__ == "__main__":
    main()
