"""Writes a digest of the source text of every kernel, to compare two states of the compiler.

    python tests/emitted_sources.py DIGESTS.json [--compare OTHER.json] [--cells NAME ...] [--save FOLDER]

Nothing is built. The texts cover every cell, and some user-defined cells, at two sizes, in both dtypes, and for C++ in
two vector widths. A change that only moves or renames code of the compiler leaves every digest as it is.
"""

import argparse
import json
import sys
from collections.abc import Iterator, Mapping
from hashlib import sha256
from pathlib import Path

import torch

import my_memories
import test_compiler
from fastweights import Cell
from fastweights.cells.mesa import make_mesa
from fastweights.compiler.op import sizes_of
from fastweights.compiler.pipeline import passes
from fastweights.compiler.targets.cpp.emit import CppSource
from fastweights.compiler.targets.cpp.one_step import one_step_source
from fastweights.compiler.targets.cpp.plan import plan, plan_one_step
from fastweights.compiler.targets.triton.source import sourced
from fastweights.testing import scan_checks
from fastweights.testing.samples import Shape

SHAPES = (Shape(B=1, T=3, H=1, K=5, V=4), Shape(B=1, T=3, H=1, K=24, V=40))
DTYPES = (torch.float32, torch.float64)
WIDTHS = (16, 64)
"""Bytes per vector: the narrowest and the widest of all CPUs."""
HEADS = (1, 4096)
"""Few heads let Triton divide a head among several programs."""
OUT_OF_ORDER = ("flipped", "summed_so_far", "turned_around", "from_all_sides")


def cells() -> dict[str, Cell]:
    """All cells by name, and user-defined cells that read and write in unusual ways."""
    functions = [*test_compiler.CELLS, *(getattr(my_memories, name) for name in OUT_OF_ORDER), make_mesa(12)]
    return {name: Cell.from_name(name) for name in Cell.names()} | {
        f"user {f.__name__}": Cell.from_function(f) for f in functions
    }


def texts(cell: Cell, sizes: Mapping[str, int], dtype: torch.dtype) -> Iterator[tuple[str, str]]:
    """Every source text of a cell, with the name of the kernel, at some sizes and in a dtype."""
    compiled = passes(cell, sizes, dtype)
    for width in WIDTHS:
        lanes = width // dtype.itemsize
        loops = plan(compiled, lanes)
        yield f"cpp {width} forward", CppSource(loops, "title", dtype, lanes).forward()
        yield f"cpp {width} backward", CppSource(loops, "title", dtype, lanes).backward()
        yield f"cpp {width} one step", one_step_source(plan_one_step(compiled, lanes), "title", dtype, lanes)
    for num_heads in HEADS:
        yield f"triton {num_heads}", sourced(compiled, "title", dtype, num_heads).text


def named_texts(names: list[str]) -> Iterator[tuple[str, str]]:
    """The source texts of some cells at all sizes and in all dtypes; of all cells if no name is given."""
    chosen = {name: cell for name, cell in cells().items() if not names or name in names}
    for name, cell in chosen.items():
        for shape in SHAPES:
            a = scan_checks.arguments(cell, shape)
            sizes = sizes_of(cell, [*a.inputs, *a.state, *(a.params or ())])
            for dtype in DTYPES:
                for kernel, text in texts(cell, sizes, dtype):
                    yield f"{name}, {sizes}, {str(dtype).removeprefix('torch.')}, {kernel}", text
        print(name, file=sys.stderr, flush=True)


def differences(mine: Mapping[str, str], others: Mapping[str, str]) -> list[str]:
    """The names of the texts that both have and that differ."""
    return [name for name in mine if name in others and mine[name] != others[name]]


def main() -> int:
    """Returns 1 if a text differs from the text of the same name in the other file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("digests", type=Path)
    parser.add_argument("--compare", type=Path)
    parser.add_argument("--cells", nargs="*", default=[])
    parser.add_argument("--save", type=Path)
    options = parser.parse_args()
    digests = {}
    for name, text in named_texts(options.cells):
        digests[name] = sha256(text.encode()).hexdigest()
        if options.save:
            options.save.mkdir(parents=True, exist_ok=True)
            (options.save / f"{name.replace('/', '_')}.txt").write_text(text)
    options.digests.write_text(json.dumps(digests, indent=0))
    changed = differences(digests, json.loads(options.compare.read_text())) if options.compare else []
    print("\n".join([*changed, f"{len(changed)} of {len(digests)} texts differ"]))
    return bool(changed)


if __name__ == "__main__":
    sys.exit(main())
