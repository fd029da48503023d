"""The report of `explain --target` on the fused chunk kernels of a cell, for a chip that need not be present."""

from collections.abc import Iterator, Mapping

import torch

from fastweights.backends.chunkwise.lowering import ScanStage, lowering_for
from fastweights.backends.chunkwise.stage_scan import limit, stage_form
from fastweights.cell import Cell


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
        kernel = assembled(name, form, compute_dtype, chip)
        registers = f"{kernel.registers} registers a thread, {kernel.spills} bytes spilt"
        yield f"    {name:<9}  {kernel.warps} warps, {registers}, {kernel.shared} bytes shared"
