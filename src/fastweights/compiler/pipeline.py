"""The compiler pipeline: from a cell in plain PyTorch to the kernels of any target.

The functions `_passes` and `_affine` list the compiler passes, one per line. Each pass returns a frozen record. The
module `ir/verify.py` defines when a record is well formed, `ir/interpret.py` computes what it means, and `ir/show.py`
prints it. The page `docs/contributing/compiler.md` follows one small cell through all passes.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fastweights.cell import Cell
from fastweights.compiler.affine.finder import affine_form
from fastweights.compiler.affine.form import AffineForm
from fastweights.compiler.clean_thread import run_in_clean_thread
from fastweights.compiler.frontend.lower import lower, lower_forward, lower_map
from fastweights.compiler.frontend.trace import trace, trace_forward, trace_map
from fastweights.compiler.ir.passes import Passes, split
from fastweights.compiler.ir.step_map import StepMap
from fastweights.compiler.targets.cell_spec import CellSpec
from fastweights.compiler.targets.target import CHIPS, Kernel, OneStep, target_of


def passes(cell: Cell, sizes: Mapping[str, int], dtype: torch.dtype) -> Passes:
    """The passes of a cell's kernels over time, the same for every target.

    Args:
        cell: The cell to compile.
        sizes: The size of every axis of the cell.
        dtype: The dtype of all floating tensors.

    Raises:
        Unsupported: The cell leaves the subset of PyTorch that compiles.
    """
    return run_in_clean_thread(_passes, CellSpec(cell, sizes, dtype))


def _passes(spec: CellSpec) -> Passes:
    traced = trace(spec.cell, spec.sizes, spec.dtype)  # the step and its gradient as one graph of core ATen operations
    step = lower(traced)  # tensor expressions: no views, no common subexpressions, sums of products distributed
    return split(step)  # the forward, recompute and backward pass over time


def affine(cell: Cell, sizes: Mapping[str, int], dtype: torch.dtype) -> AffineForm:
    """The affine form of a cell's step, without its gradient.

    Raises:
        NotAffine: The new state is not an affine function of the old state.
        Unsupported: The cell leaves the subset of PyTorch that compiles.
    """
    return run_in_clean_thread(_affine, CellSpec(cell, sizes, dtype))


def _affine(spec: CellSpec) -> AffineForm:
    traced = trace_forward(spec.cell, spec.sizes, spec.dtype)  # the step alone as one graph of core ATen operations
    step = lower_forward(traced)  # tensor expressions, where reads of the new state have a name
    axes = {name: slot.axes.split() for name, slot in spec.cell.slots["State"].items()}
    return affine_form(step, axes)  # the coefficients of the old state, if there are any


def step_map(
    function: Callable[..., Sequence[Sequence[Tensor]]],
    inputs: Sequence[Tensor],
    params: Sequence[Tensor],
    marks: Sequence[Tensor],
) -> StepMap:
    """A function of the tensors of one time step, with its gradient, as tensor expressions.

    Args:
        function: Takes the inputs, params and marks. It returns the parts of every output.
        inputs: Tensors that differ from step to step.
        params: Tensors that all steps share.
        marks: Further tensors that differ from step to step, without a gradient.

    Raises:
        Unsupported: The function leaves the subset of PyTorch that compiles.
    """
    return run_in_clean_thread(_step_map, function, inputs, params, marks)


def _step_map(function: Any, inputs: Sequence[Tensor], params: Sequence[Tensor], marks: Sequence[Tensor]) -> StepMap:
    parts = [len(output) for output in function(*inputs, *params, *marks)]
    graph = trace_map(lambda *x: [part for output in function(*x) for part in output], [*inputs, *params], marks)
    return lower_map(graph, (len(inputs), len(params), len(marks)), parts)


def source(cell: Cell, sizes: Mapping[str, int], dtype: torch.dtype, device: str) -> str:
    """The source text of a cell's kernels for a type of device.

    Raises:
        Unsupported: The cell leaves the subset of PyTorch that compiles.
    """
    return target_of(device).source(CellSpec(cell, sizes, dtype), passes(cell, sizes, dtype))


def kernel(cell: Cell, sizes: Mapping[str, int], dtype: torch.dtype, device: str, text: str) -> Kernel:
    """The kernel of a cell for a type of device.

    Args:
        cell: The cell to compile.
        sizes: The size of every axis of the cell.
        dtype: The dtype of all floating tensors.
        device: The type of the device, such as "cpu".
        text: The operations of the step as text. It identifies the kernel in the cache.

    Raises:
        Unsupported: The cell leaves the subset of PyTorch that compiles.
        Unbuilt: The machine lacks the tools that build kernels, or a tool fails.
    """
    return target_of(device).kernel(CellSpec(cell, sizes, dtype), text, partial(passes, cell, sizes, dtype))


def one_step(cell: Cell, sizes: Mapping[str, int], dtype: torch.dtype, device: str, text: str) -> OneStep | None:
    """The kernel of a single time step without a backward pass; None if the target has no such kernel.

    The arguments and errors are those of `kernel`.
    """
    return target_of(device).one_step(CellSpec(cell, sizes, dtype), text, partial(passes, cell, sizes, dtype))


def report(cell: Cell, sizes: Mapping[str, int], dtype: torch.dtype, chip: str, num_heads: int) -> str:
    """The grid, the resources and the source of a cell's kernels on one of `CHIPS`, for a total number of heads.

    Raises:
        Unsupported: The cell leaves the subset of PyTorch that compiles.
        Unbuilt: This machine lacks the tools that build kernels, or a tool fails.
    """
    module: Any = target_of(CHIPS[chip])
    return str(module.report(CellSpec(cell, sizes, dtype), partial(passes, cell, sizes, dtype), chip, num_heads))


def write(cell: Cell, sizes: Mapping[str, int], dtype: torch.dtype, folder: Path) -> list[Path]:
    """Writes a cell as C++ with a C interface for use without Python, and returns the paths.

    The forward pass is in `NAME.cpp`, its declarations are in `NAME.h`, and `example.c` calls it. GCC, Clang and
    compatible compilers build the files for any CPU.

    Raises:
        Unsupported: The cell leaves the subset of PyTorch that compiles.
    """
    module: Any = target_of("cpu")
    return list(module.write(CellSpec(cell, sizes, dtype), passes(cell, sizes, dtype), folder))
