"""What can be shown of the GPU kernels without a GPU: what they mean, and what assemblers make of them.

    python benchmarks/gpu_proof.py --into docs/gpu.md

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
from pathlib import Path
from typing import Any

import torch

from fastweights import Cell
from fastweights.compiler.op import sizes_of
from fastweights.compiler.target import title
from fastweights.compiler.triton import chips
from fastweights.compiler.triton.source import sourced
from fastweights.compiler.triton.target import step
from fastweights.compiler.unsupported import Unbuilt
from fastweights.files import write_atomically
from fastweights.testing.samples import Shape, sample_inputs, sample_params, sample_state

ROOT = Path(__file__).parents[1]
KEPT = ROOT / "benchmarks" / "gpu_proof.json"
MARK = "<!-- benchmarks/gpu_proof.py writes from here -->"
SIZES = (16, 32, 64)
HEADS = 1024
"""Heads of all members of a batch: enough that no head is cut to fill a chip."""
CHECKS = (
    "equals_the_reference",
    "equals_the_reference_everywhere",
    "equals_the_reference_cut",
    "gradients_pass_two_layers",
)


def interpreted(name: str) -> dict[str, str]:
    """What every check says of a cell."""
    environment = os.environ | {"TRITON_INTERPRET": "1"}
    script = str(ROOT / "tests" / "interpreted.py")
    found = {}
    for check in CHECKS:
        done = subprocess.run(
            [sys.executable, script, check, name], capture_output=True, text=True, env=environment, check=True
        )
        found[check] = done.stdout.strip().removeprefix(f"{name} ")
    return found


def assembled(name: str, size: int, chip: str) -> dict[str, Any]:
    """Both kernels at K = V = size."""
    cell, shape = Cell.named(name), Shape(1, 1, 1, size, size)
    given = [*sample_inputs(cell, shape), *sample_state(cell, shape), *(sample_params(cell, shape) or ())]
    sizes = sizes_of(cell, given)
    source = sourced(step(cell, sizes, torch.float32), title(cell, sizes, torch.float32), torch.float32, HEADS)
    found: dict[str, Any] = {"cuts": source.cuts}
    for way in ("forward", "backward"):
        try:
            found[way] = vars(chips.choose(source, way, chips.target_of(chip)))
        except Unbuilt as error:
            found[way] = str(error)
    return found


def measure(names: list[str], again: bool) -> None:
    """Makes all results that are not in the file."""
    kept: dict[str, Any] = {} if again or not KEPT.exists() else json.loads(KEPT.read_text(encoding="utf-8"))

    def once(key: str, make: Callable[[], Any]) -> None:
        if key not in kept:
            kept[key] = make()
            write_atomically(KEPT, f"{json.dumps(kept, indent=1)}\n".encode())
            print(key, kept[key], flush=True)

    for size in SIZES:
        for chip in ("sm_90", "sm_80", "sm_100", "gfx942") if size == SIZES[0] else ("sm_90",):
            for name in names:
                once(f"{name} {chip} {size}", lambda n=name, s=size, c=chip: assembled(n, s, c))
    for name in names:
        once(f"{name} interpreted", lambda n=name: interpreted(n))


def table(kept: dict[str, Any]) -> str:
    """Markdown."""
    head = [
        "cell",
        "equals the reference",
        *(f"sm_90, {n}" for n in SIZES),
        *(f"{c}, 16" for c in ("sm_80", "sm_100", "gfx942")),
    ]
    lines = [_row(head), _row(["---"] * len(head))]
    for name in sorted({key.split()[0] for key in kept}):
        checks = kept.get(f"{name} interpreted", {"not run by this command yet": ""})
        right = (
            "yes"
            if set(checks.values()) == {"ok"}
            else "; ".join(f"{c}: {v}" if v else c for c, v in checks.items() if v != "ok")
        )
        cells = [f"{name} sm_90 {n}" for n in SIZES] + [f"{name} {c} 16" for c in ("sm_80", "sm_100", "gfx942")]
        lines.append(_row([name, right, *(_cell(kept[key]) if key in kept else "not made yet" for key in cells)]))
    return "\n".join(lines)


def _row(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _cell(found: dict[str, Any]) -> str:
    ways = [_way(found[way]) for way in ("forward", "backward")]
    cuts = f" ({found['cuts']} programs)" if found["cuts"] > 1 else ""
    return "; ".join(ways) + cuts


def _way(found: Any) -> str:
    if isinstance(found, str):
        return "does not build"
    spills = f", **{found['spills']} spilt**" if found["spills"] else ""
    return f"{found['warps']} x {found['registers']}{spills}"


def main() -> None:
    """Measures, and writes the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cells", nargs="*", help="those to show it of now; default: all")
    parser.add_argument("--into", type=Path, help="the page whose table is replaced")
    parser.add_argument("--again", action="store_true", help="make all anew")
    options = parser.parse_args()
    try:
        measure(options.cells or Cell.names(), options.again)
    except KeyboardInterrupt:
        print("stopped: the table has what there is")
    text = table(json.loads(KEPT.read_text(encoding="utf-8")))
    if options.into is None:
        print(text)
    else:
        before = options.into.read_text(encoding="utf-8").partition(MARK)[0]
        write_atomically(options.into, f"{before}{MARK}\n\n{text}\n".encode())


if __name__ == "__main__":
    main()
