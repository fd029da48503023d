"""Builds kernels ahead of time, or exports a cell as C++ for programs without Python.

The kernels of a cell or a layer are stored in the cache, so that the first call is fast. With --output-dir, the cell
is exported with a C interface instead: code, header and example.
"""

import argparse
from collections.abc import Sequence
from typing import Any

from fastweights.commands._arguments import CELL, cell_of, path, sizes_of
from fastweights.core.errors import InputError, require


def add(command: argparse.ArgumentParser) -> None:
    """Adds a cell or a layer, and its sizes."""
    command.add_argument("cell", metavar="CELL", help=f"{CELL} Or a layer, likewise.")
    sizes = "Sizes of all axes of the cell, such as K=16 V=16; or d_model and num_heads of the layer, D=256 H=4."
    command.add_argument("--size", nargs="+", required=True, metavar="AXIS=N", help=sizes)
    dtypes = ["float32", "float64"]
    command.add_argument("--dtype", choices=dtypes, default="float32", help="Data type of states and inputs.")
    files = "Folder for the C++ files. Without it, kernels are built and stored in the cache."
    command.add_argument("--output-dir", type=path, metavar="DIR", help=files)


def run(options: argparse.Namespace) -> int:
    """Builds the kernels, or exports the cell."""
    import torch

    dtype = getattr(torch, options.dtype)
    if options.output_dir is not None:
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
        files = write(cell, _all_sizes(options.size, cell), dtype, options.output_dir)
    except Unsupported as error:
        raise InputError(f"cell must be one that compiles, got {cell.name}: {error}.") from None
    print(f"Written: {', '.join(map(str, files))}. Build instructions are in the first line of the last file.")
    return 0


def _all_sizes(arguments: Sequence[str], cell: Any) -> dict[str, int]:
    """Parses sizes such as `K=64` for every axis of a cell."""
    sizes, axes = sizes_of(arguments, cell.example_sizes), cell.example_sizes
    require(set(sizes) == set(axes), "size", f"given for every axis, {' '.join(f'{a}=N' for a in axes)}", arguments)
    return sizes
