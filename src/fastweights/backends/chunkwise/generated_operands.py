"""The operands of a fused scan in one generated kernel: coefficients, resets and padding of all steps at once.

An operand that is an input of the cell is passed on without a copy, in half precision if it has that.
"""

from collections.abc import Callable, Sequence
from itertools import islice

from torch import Tensor

from fastweights.backends.chunkwise.all_steps import StepTensors, for_all_steps
from fastweights.backends.chunkwise.coefficients import PreparedScan, StepCoefficients
from fastweights.backends.chunkwise.factors import factors_of
from fastweights.backends.chunkwise.fused_scan import ScanOperands
from fastweights.backends.chunkwise.lowering import ScanStage
from fastweights.backends.chunkwise.part_layout import PartLayout


def generated_operands(
    stage: ScanStage, prepared: PreparedScan, layout: PartLayout, S: Tensor, is_across: bool
) -> ScanOperands | None:
    """The operands of a scan by a generated kernel; None where PyTorch has to compute them.

    That is the case for resets to a state other than 0, whose coefficients depend on this state.
    """
    names = prepared.builder.names
    if prepared.builder.extra or prepared.left_over is not None:
        return None
    function = operand_function(stage, prepared, layout, is_across)
    key = stage.function.run, names, layout, is_across
    outputs = for_all_steps(key, function, operand_tensors(stage, prepared), S.dtype, S.dtype)
    if outputs is None:
        return None
    shaped = iter([x.reshape(*x.shape[:2], S.shape[1], -1) for x in outputs])
    decays = stage.decay_axes is not None or "not_reset" in names
    q, k = islice(shaped, 2)
    e, v = next(shaped) if layout.erases else None, next(shaped)
    return ScanOperands(q, k, e, v, next(shaped) if decays else None, S)


def operand_tensors(stage: ScanStage, prepared: PreparedScan) -> StepTensors:
    """The arguments of `operand_function` for all steps."""
    tensors, count = list(prepared.time.values()), len(stage.function.per_step)
    return StepTensors(tensors[:count], prepared.constant, tensors[count:])


def operand_function(
    stage: ScanStage, prepared: PreparedScan, layout: PartLayout, is_across: bool
) -> Callable[..., list[Sequence[Tensor]]]:
    """The parts of q, k, e, v and a that a scan has, each `[groups, n]`, as a function of the tensors of one step."""

    def operands(*tensors: Tensor) -> list[Sequence[Tensor]]:
        steps = _one_step(stage, prepared, tensors)
        vectors = steps.across if is_across else steps.queries
        placed = layout.placed(steps, vectors, factors_of(stage.blocks))
        return [[part.flatten(0, 2) for part in parts] for parts in placed if parts is not None]

    return operands


def _one_step(stage: ScanStage, prepared: PreparedScan, tensors: Sequence[Tensor]) -> StepCoefficients:
    """The coefficients of one step of one head, from its inputs, params and marks."""
    builder, count = prepared.builder, len(stage.function.per_step)
    rest = iter(tensors)
    inputs, params = list(islice(rest, count)), list(islice(rest, builder.num_params))
    marks = [x > 0 if name == "valid" else x for name, x in zip(builder.names[count:], rest, strict=True)]
    time = [x[None, None, None, None] for x in (*inputs, *marks)]
    return builder.steps(time, [x[None] for x in params], 0)
