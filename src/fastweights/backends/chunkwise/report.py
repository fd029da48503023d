"""The report of `explain --target` on the fused chunk kernels of a cell, for a chip that need not be present."""

from collections.abc import Iterator, Mapping
from typing import Any

import torch

from fastweights.backends.chunkwise.lowering import RunningMaxStage, ScanStage, lowering_for
from fastweights.backends.chunkwise.stage_scan import limit, stage_form
from fastweights.backends.chunkwise.step_functions import OperandMap, operand_maps
from fastweights.cell import Cell
from fastweights.compiler.targets.target import CHIPS, DIRECTIONS, target_of


def report(cell: Cell, sizes: Mapping[str, int], dtype: torch.dtype, chip: str) -> str:
    """The warps, registers, spills and shared memory of the kernels of every stage, for inputs of a dtype.

    Raises:
        Unbuilt: The compiler fails.
    """
    inner = cell if cell.inner_cell is None else cell.inner_cell[0]
    compute_dtype = torch.promote_types(dtype, torch.float32)
    lowering = lowering_for(inner.key, tuple(sizes.items()), compute_dtype)
    if isinstance(lowering, str):
        return f"{cell.name} does not run in chunks: {lowering}"
    stages = [stage for stage in lowering.stages if isinstance(stage, ScanStage)]
    lines = [line for stage in stages for line in _of_stage(stage, dtype, chip)]
    maxima = [stage.state for stage in lowering.stages if isinstance(stage, RunningMaxStage)]
    lines += [line for state in maxima for line in _of_maximum(state, compute_dtype, chip)]
    lines += [line for operands in operand_maps(inner, sizes, dtype) for line in _of_operands(operands, chip)]
    return "\n".join([f"{cell.name} in chunks on {chip}: {lowering.description}", *lines])


def _of_stage(stage: ScanStage, dtype: torch.dtype, chip: str) -> Iterator[str]:
    from fastweights.backends.chunkwise.triton.fused_scan import KERNELS, assembled

    reason = limit(stage)
    if reason:
        yield f"  in PyTorch, not in fused kernels: {reason}"
        return
    compute_dtype = torch.promote_types(dtype, torch.float32)
    form = stage_form(stage, dtype != compute_dtype)
    states = ", ".join(part.state for part in stage.parts)
    yield f"  {states}: chunks of {form.sizes.C} steps, programs of {form.sizes.ROWS} rows"
    for name in KERNELS:
        yield _line(name, assembled(name, form, compute_dtype, chip))


def _of_maximum(state: str, dtype: torch.dtype, chip: str) -> Iterator[str]:
    from fastweights.backends.chunkwise.triton.fused_max import BLOCK, KERNELS, assembled

    yield f"  {state}: a running maximum, in blocks of {BLOCK} steps"
    for name in KERNELS:
        yield _line(name, assembled(name, dtype, chip))


def _of_operands(operands: OperandMap, chip: str) -> Iterator[str]:
    if not operands.function.computed:
        yield f"  operands of {operands.states}: inputs as they are, without a kernel"
        return
    yield f"  operands of {operands.states}: {len(operands.function.computed)} tensors computed"
    compute_dtype = torch.promote_types(operands.dtypes[0], torch.float32)
    module: Any = target_of(CHIPS[chip])
    kernel = module.step_map(operands.function, f"operands of {operands.states}", compute_dtype)
    for name in DIRECTIONS:
        yield _line(name, kernel.assembled(name, operands.dtypes, chip))


def _line(name: str, kernel: Any) -> str:
    """The resources of a kernel."""
    registers = f"{kernel.registers} registers a thread, {kernel.spills} bytes spilt"
    return f"    {name:<9}  {kernel.warps} warps, {registers}, {kernel.shared} bytes shared"
