"""Builds kernels ahead of time, or exports a trained model or a cell as C++ for programs without Python.

A run folder of a trained model is exported as C++: source, header, weights, and a main program that uses the model.
Language models, translators, classifiers, few-shot networks and agents have a program.
The kernels of a cell or a layer are built and stored in the cache. Then the first call is fast. With --output-dir, a
cell is exported with a C interface instead: code, header and example.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fastweights.commands._arguments import CELL, cell_of, path, require_cell_or_layer, sizes_of
from fastweights.core.errors import InputError, require


def add(command: argparse.ArgumentParser) -> None:
    """Adds a run, a cell or a layer, its sizes, and options of the files."""
    run_or_cell = f"Run folder of a trained model. {CELL} Or a layer, likewise."
    command.add_argument("cell", metavar="RUN|CELL", help=run_or_cell)
    files = "Folder for the C++ files. Required for a run. Kernels of cells are stored in the cache without it."
    command.add_argument("--output-dir", type=path, metavar="DIR", help=files)
    run = command.add_argument_group("runs")
    weights = "Type of the matrices in the weight file. int8 has a scale per row."
    run.add_argument("--weights", choices=["float32", "bfloat16", "int8"], default="float32", help=weights)
    layer = "Import path MODULE:NAME or PATH.py:NAME of the custom layer of the run. Its code is executed."
    run.add_argument("--layer", metavar="NAME", help=layer)
    cell = command.add_argument_group("cells and layers")
    sizes = "Sizes of all axes of the cell, such as K=16 V=16; or d_model and num_heads of the layer, D=256 H=4."
    cell.add_argument("--size", nargs="+", default=[], metavar="AXIS=N", help=sizes)
    dtypes = ["float32", "float64"]
    cell.add_argument("--dtype", choices=dtypes, default="float32", help="Data type of states and inputs.")


def run(options: argparse.Namespace) -> int:
    """Exports the model of a run or the cell, or builds the kernels."""
    import torch

    if Path(options.cell).is_dir():
        return _write_model(options)
    require_cell_or_layer(options.cell)
    dtype = getattr(torch, options.dtype)
    if options.output_dir is not None:
        return _write_c(cell_of(options.cell), options, dtype)
    from fastweights.commands._prebuild import prebuild_cell, prebuild_layer

    require(options.size, "size", "given for a cell or a layer", f"none for {options.cell}")
    if {pair.partition("=")[0] for pair in options.size} == {"D", "H"}:
        sizes = sizes_of(options.size, "DH")
        built = prebuild_layer(options.cell, sizes["D"], sizes["H"], dtype)
    else:
        cell = cell_of(options.cell)
        built = prebuild_cell(cell, _all_sizes(options.size, cell), dtype)
    print("\n".join(f"Built: {kernel}" for kernel in built))
    return 0


def _write_model(options: argparse.Namespace) -> int:
    from fastweights.adapters.standalone import write
    from fastweights.experiments.load import load

    require(options.output_dir is not None, "output_dir", "given for a run", "none")
    model, task = load(options.cell, options.layer)
    files = write(model, task, options.output_dir, options.weights)
    print(f"Written: {', '.join(map(str, files))}. Build instructions are in the last file.")
    return 0


def _write_c(cell: Any, options: argparse.Namespace, dtype: Any) -> int:
    from fastweights.compiler.errors import Unsupported
    from fastweights.compiler.pipeline import write

    try:
        files = write(cell, _all_sizes(options.size, cell), dtype, options.output_dir)
    except Unsupported as error:
        raise InputError(f"cell must be a cell that compiles, got {cell.name}: {error}.") from None
    print(f"Written: {', '.join(map(str, files))}. Build instructions are in the first line of the last file.")
    return 0


def _all_sizes(arguments: Sequence[str], cell: Any) -> dict[str, int]:
    """Parses sizes such as `K=64` for every axis of a cell."""
    sizes, axes = sizes_of(arguments, cell.example_sizes), cell.example_sizes
    require(set(sizes) == set(axes), "size", f"given for every axis, {' '.join(f'{a}=N' for a in axes)}", arguments)
    return sizes
