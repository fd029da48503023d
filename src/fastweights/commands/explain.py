"""Explains which backend runs a cell at given sizes and why, or prints its compiled code."""

import argparse
from collections.abc import Collection
from typing import Any

from fastweights.commands._arguments import CELL, cell_of, device_of, sizes_of
from fastweights.core.errors import InputError, require, require_name

SIZES = {"B": 8, "T": 256, "H": 8, "K": 16, "V": 16}

MOST = 1 << 28
"""Maximum number of elements of an input or a state, which are allocated."""


def add(command: argparse.ArgumentParser) -> None:
    """Adds a cell, its sizes, and the kind of output."""
    command.add_argument("cell", metavar="CELL", help=CELL)
    sizes = f"""Sizes of axes: batch B, time T, heads H, key size K, value size V; with --target also the other axes of
        the cell. (default: {" ".join(f"{axis}={size}" for axis, size in SIZES.items())})"""
    command.add_argument("--size", nargs="+", default=[], metavar="AXIS=N", help=sizes)
    dtypes = ["float32", "float64", "bfloat16", "float16"]
    command.add_argument("--dtype", choices=dtypes, default="float32", help="Data type of the inputs.")
    command.add_argument("--device", default="cpu", metavar="NAME", help="Device of the inputs, such as cuda.")
    instead = command.add_mutually_exclusive_group()
    instead.add_argument("--ir", action="store_true", help="Intermediate representation of the kernels, as output.")
    instead.add_argument("--source", action="store_true", help="Generated code of the kernels, as output.")
    chip = "Generated code for a GPU architecture such as sm_90, as output. Needs no GPU."
    instead.add_argument("--target", metavar="CHIP", help=chip)


def run(options: argparse.Namespace) -> int:
    """Prints the explanation or the code."""
    import torch

    from fastweights.dispatch import explain
    from fastweights.testing.samples import Shape, sample_inputs

    cell = cell_of(options.cell)
    if options.target is not None:
        print(_on_chip(cell, options))
        return 0
    shape = Shape(**_sizes(options, SIZES))
    numbers = shape.B * shape.H * max(shape.K, shape.V) * max(shape.T, shape.K, shape.V)
    require(numbers <= MOST, "input", f"at most {MOST:,} numbers", f"{numbers:,}", "Use smaller ones.")
    with torch.device(device_of(options.device)):
        inputs = sample_inputs(cell, shape, getattr(torch, options.dtype))
    if options.ir or options.source:
        print(_compiled(cell, shape, inputs[0], options.ir))
    else:
        print(explain(cell, inputs, params=_params(cell, shape)))
    return 0


def _sizes(options: argparse.Namespace, axes: Collection[str]) -> dict[str, int]:
    return SIZES | sizes_of(options.size, axes, MOST)


def _params(cell: Any, shape: Any) -> Any:
    from fastweights.testing.samples import sample_params

    return sample_params(cell, shape)


def _compiled(cell: Any, shape: Any, like: Any, ir: bool) -> str:
    """The kernels of a cell, as intermediate representation or in the language of the target."""
    import torch

    from fastweights.compiler import op, pipeline
    from fastweights.compiler.errors import Unsupported
    from fastweights.compiler.ir.show import show
    from fastweights.compiler.targets.target import TARGETS
    from fastweights.testing.samples import sample_inputs, sample_params, sample_state

    tensors = [*sample_inputs(cell, shape), *sample_state(cell, shape), *(sample_params(cell, shape) or ())]
    sizes, dtype, device = op.sizes_of(cell, tensors), torch.promote_types(like.dtype, torch.float32), like.device.type
    require_name("device", device, TARGETS)
    try:
        return show(pipeline.passes(cell, sizes, dtype)) if ir else pipeline.source(cell, sizes, dtype, device)
    except Unsupported as error:
        raise InputError(f"cell must be a cell that compiles, got {cell.name}: {error}.") from None


def _on_chip(cell: Any, options: argparse.Namespace) -> str:
    """Report on the kernels of a cell for a chip: those of chunks, then those of step by step and their source."""
    import torch

    from fastweights.backends.chunkwise import report as chunkwise
    from fastweights.compiler.errors import Unbuilt, Unsupported
    from fastweights.compiler.pipeline import report
    from fastweights.compiler.targets.target import CHIPS

    require_name("target", options.target, CHIPS)
    named = cell.example_sizes | _sizes(options, {**SIZES, **cell.example_sizes})
    sizes, dtype = {axis: named[axis] for axis in cell.example_sizes}, getattr(torch, options.dtype)
    try:
        recurrent = report(
            cell, sizes, torch.promote_types(dtype, torch.float32), options.target, named["B"] * named["H"]
        )
        return f"{chunkwise.report(cell, sizes, dtype, options.target)}\n\n{recurrent}"
    except Unsupported as error:
        raise InputError(f"cell must be a cell that compiles, got {cell.name}: {error}.") from None
    except Unbuilt as error:
        raise InputError(f"target must be supported by an installed compiler, got {options.target}: {error}.") from None
