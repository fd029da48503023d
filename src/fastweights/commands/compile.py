"""Builds kernels ahead, or writes a cell as C++ for programs without Python.

The kernels of a cell or a layer go into the cache, so that no first call waits for them. With --into, the cell is
written with a C interface instead: code, header and example.
"""

import argparse
from collections.abc import Sequence
from typing import Any

from fastweights.commands._arguments import CELL, cell_of, folder, sizes_of
from fastweights.core.errors import InputError, require


def add(command: argparse.ArgumentParser) -> None:
    """A cell or a layer, and its sizes."""
    command.add_argument("cell", metavar="CELL", help=f"{CELL}; or a layer, by its name or of such a cell")
    sizes = "of every axis of the cell: K=16 V=16; or d_model and heads of the layer: D=256 H=4"
    command.add_argument("--size", nargs="+", required=True, metavar="AXIS=N", help=sizes)
    command.add_argument("--into", type=folder, metavar="FOLDER", help="where the files of C++ go")
    dtypes = ["float32", "float64"]
    command.add_argument("--dtype", choices=dtypes, default="float32", help="default: %(default)s")


def run(options: argparse.Namespace) -> int:
    """Builds or writes it."""
    import torch

    dtype = getattr(torch, options.dtype)
    if options.into is not None:
        return _write_c(cell_of(options.cell), options, dtype)
    from fastweights.commands._prebuild import prebuild_cell, prebuild_layer

    if {pair.partition("=")[0] for pair in options.size} == {"D", "H"}:
        sizes = sizes_of(options.size, "DH")
        built = prebuild_layer(options.cell, sizes["D"], sizes["H"], dtype)
    else:
        cell = cell_of(options.cell)
        built = prebuild_cell(cell, _all_sizes(options.size, cell), dtype)
    print("\n".join(f"Built: {kernel}" for kernel in built))
    return 0


def _write_c(cell: Any, options: argparse.Namespace, dtype: Any) -> int:
    from fastweights.compiler.errors import Unsupported
    from fastweights.compiler.pipeline import write

    try:
        files = write(cell, _all_sizes(options.size, cell), dtype, options.into)
    except Unsupported as error:
        raise InputError(f"cell must be one that compiles, got {cell.name}: {error}.") from None
    print(f"Written: {', '.join(map(str, files))}. The first line of the last one says how to build them.")
    return 0


def _all_sizes(given: Sequence[str], cell: Any) -> dict[str, int]:
    """`K=64` and the like, for every axis of a cell."""
    sizes, axes = sizes_of(given, cell.example_sizes), cell.example_sizes
    require(set(sizes) == set(axes), "size", f"given for every axis, {' '.join(f'{a}=N' for a in axes)}", given)
    return sizes
