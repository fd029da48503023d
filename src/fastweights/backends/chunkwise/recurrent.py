"""States that are computed step by step, such as the recurrent part of a cell: a scan of a cell of their own."""

from collections.abc import Mapping

import torch
from torch import Tensor

from fastweights.backends import compiled, reference
from fastweights.backends.chunkwise.lowering import RecurrentStage
from fastweights.call.scan_call import FILL, ScanCall
from fastweights.call.tensors import Tensors
from fastweights.core.grad_mode import wants_gradients
from fastweights.core.padding import mask_steps

Named = dict[str, Tensor]


def run_loop(stage: RecurrentStage, call: ScanCall, named: Mapping[str, Tensor]) -> tuple[Named, Named]:
    """The outputs `[B, T, H, ...]` that other stages read, and the last states `[B, H, ...]`, by name.

    A compiled kernel runs the loop, or PyTorch where there is none.
    """
    inner = _loop_call(stage, call, named)
    y, last = (compiled if _compiles(inner) else reference).run(inner)
    valid = call.valid
    y = y if valid is None else mask_steps(valid, y, FILL)
    return _parted(stage, y), last._asdict()


def _compiles(call: ScanCall) -> bool:
    """Whether a kernel runs the loop. An exported program has none: only this process knows the cell of the loop."""
    return not torch.compiler.is_exporting() and not compiled.unsupported_reason(call, build=True)


def _loop_call(stage: RecurrentStage, call: ScanCall, named: Mapping[str, Tensor]) -> ScanCall:
    """The call of the loop's cell, with the tensors that have the names of its fields."""
    cell, slots, (B, T, H) = stage.cell, stage.cell.slots, call.plan.leading
    dtype = call.plan.compute_dtype
    inputs = [named[name].to(dtype).expand(B, T, H, *slot.shape({})) for name, slot in slots["Inputs"].items()]
    params = [named[name].expand(H, *slot.shape({})) for name, slot in slots.get("Params", {}).items()]
    records = [call.tensors.state, call.tensors.initial_state]
    states = [None if record is None else cell.State(*(record[name] for name in slots["State"])) for record in records]
    state, initial_state = states
    tensors = Tensors(
        cell.Inputs(*inputs),
        state,
        None if cell.Params is None else cell.Params(*params),
        call.tensors.reset,
        call.tensors.lengths,
        initial_state,
    )
    wants = wants_gradients(tensors.all())
    plan = call.plan._replace(
        cell=cell,
        sizes={},
        dtype=dtype,
        has_state=True,
        needs_cast=False,
        wants_gradients=wants,
        start_shapes=None,
        order=[],
        fast_paths={},
    )
    return ScanCall(plan, tensors)


def _parted(stage: RecurrentStage, y: Tensor) -> Named:
    """The outputs of the loop, which are concatenated in `y` if there are several."""
    if len(stage.outputs) == 1:
        return {stage.outputs[0][0]: y}
    sizes = [torch.Size(shape).numel() for _, shape in stage.outputs]
    parts = zip(stage.outputs, y.split(sizes, -1), strict=True) if sizes else ()
    return {name: part.unflatten(-1, shape) if shape else part.squeeze(-1) for (name, shape), part in parts}
