"""The functions of one step that a cell in chunks has, without a device: for reports and tests."""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from fastweights.backends.chunkwise.all_steps import traced
from fastweights.backends.chunkwise.coefficients import prepare_scan
from fastweights.backends.chunkwise.generated_operands import operand_function, operand_tensors
from fastweights.backends.chunkwise.lowering import (
    DelayStage,
    LoweredStage,
    RunningMaxStage,
    ScanStage,
    lowering_of,
    named_tensors,
    shared_inputs,
)
from fastweights.backends.chunkwise.pieces import in_pieces
from fastweights.backends.chunkwise.stage_scan import layout_of_stage, limit
from fastweights.call.scan_call import ScanCall, scan_call
from fastweights.call.tensors import Tensors
from fastweights.cell import Cell
from fastweights.compiler.ir.step_map import StepMap


class OperandMap(NamedTuple):
    """The operands of the scan of some states, and the dtypes of the inputs on a GPU."""

    states: str
    function: StepMap
    dtypes: tuple[torch.dtype, ...]


def operand_maps(cell: Cell, sizes: Mapping[str, int], dtype: torch.dtype) -> Iterator[OperandMap]:
    """The operands of all fused scans of a cell, for inputs of a dtype.

    Raises:
        Unsupported: The compiler does not know an operation.
    """
    call = _call(cell, sizes, dtype)
    lowering = lowering_of(call)
    assert not isinstance(lowering, str), lowering
    call = in_pieces(call, lowering.splits)
    named = named_tensors(call, lowering)
    for stage in lowering.stages:
        if isinstance(stage, ScanStage) and not limit(stage):
            yield from _of_stage(stage, call, named, shared_inputs(lowering))
        named |= _results(stage, call)


def _of_stage(stage: ScanStage, call: ScanCall, named: Mapping[str, Tensor], widened: set[str]) -> Iterator[OperandMap]:
    prepared, compute_dtype = prepare_scan(stage, call, named), call.plan.compute_dtype
    is_as_given = [name.startswith("in_") and name not in widened for name in prepared.time]
    dtypes = tuple(call.plan.dtype if x else compute_dtype for x in is_as_given)
    states = ", ".join(part.state for part in stage.parts)
    for is_across in [False] * bool(stage.queries) + [True] * bool(stage.across):
        function = operand_function(stage, prepared, layout_of_stage(stage, is_across), is_across)
        yield OperandMap(states, traced(function, operand_tensors(stage, prepared), compute_dtype), dtypes)


def _call(cell: Cell, sizes: Mapping[str, int], dtype: torch.dtype) -> ScanCall:
    """A call of one time step of one head."""
    compute_dtype, slots = torch.promote_types(dtype, torch.float32), cell.slots
    inputs = cell.Inputs(*(torch.zeros(1, 1, 1, *x.shape(sizes), dtype=dtype) for x in slots["Inputs"].values()))
    state = cell.State(*(torch.zeros(1, 1, *x.shape(sizes), dtype=compute_dtype) for x in slots["State"].values()))
    params = [torch.zeros(1, *x.shape(sizes), dtype=compute_dtype) for x in slots.get("Params", {}).values()]
    return scan_call(cell, Tensors(inputs, state, None if cell.Params is None else cell.Params(*params)))


def _results(stage: LoweredStage, call: ScanCall) -> dict[str, Tensor]:
    """Zeros in place of the values that a stage computes, by name."""
    match stage:
        case ScanStage():
            shapes = {name: shape for name, _, _, shape in (*stage.along_reads, *stage.across_reads)}
        case RunningMaxStage() | DelayStage():
            shapes = dict.fromkeys((stage.before, stage.after), tuple(call.tensors.state[stage.state].shape[2:]))
        case _:
            shapes = dict(stage.outputs)
    return {name: torch.zeros(1, 1, 1, *shape, dtype=call.plan.compute_dtype) for name, shape in shapes.items()}
