"""The loop over recurrent states as a cell, which any backend can run."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from typing import Annotated, Any, NamedTuple, cast

import torch
from torch import Tensor

from fastweights.cell import Cell, register
from fastweights.compiler.affine.batched import batched
from fastweights.compiler.affine.form import Recurrent
from fastweights.compiler.affine.rewrite import Inliner
from fastweights.compiler.ir.nodes import Node, Shape, Value, ancestors, whole
from fastweights.signature import TensorSpec


def loop_cell(
    stage: Recurrent, outputs: Sequence[Node], per_step: Mapping[Node, str], constant: Mapping[Node, str]
) -> Cell:
    """The cell whose states are those of a stage, and whose output has the `outputs`, flattened and concatenated.

    Its inputs and params have the names of the `per_step` and `constant` nodes. The key of the cell depends on its
    meaning only, so that a graph that PyTorch caches on disk refers to the same cell in every process.
    """
    inliner = Inliner({part.after: part.value for part in stage.parts})
    new = [part.value for part in stage.parts]
    made = [Value(d.shape, inliner.inlined(whole(d).expression)) for d in outputs]
    before: dict[Node, str] = {part.before: part.state for part in stage.parts}
    used = ancestors([*new, *made])
    # A cell has at least one input.
    inputs = {d: name for d, name in per_step.items() if d in used and d not in before} or dict([*per_step.items()][:1])
    params = {d: name for d, name in constant.items() if d in used}
    run, text = batched([*new, *made], [*before, *inputs, *params])
    records = [_record("State", before), _record("Inputs", inputs), *([_record("Params", params)] if params else [])]
    step = _step_of(run, records[0], len(new), bool(params))
    cell = Cell.from_function(_annotated(step, records, made or new[:1]))
    shapes = [(name, d.shape) for record in (before, inputs, params) for d, name in record.items()]
    digest = sha256(f"{text}{shapes}".encode()).hexdigest()[:24]
    return register(replace(cell, name="loop", key=f"{__name__}:{digest}"))


def _step_of(
    run: Callable[..., Sequence[Tensor]], state_type: type, count: int, has_params: bool
) -> Callable[..., Any]:
    def with_params(state: Any, x: Any, params: Any) -> tuple[Any, Tensor]:
        values = run((), *state, *x, *params)
        return state_type(*values[:count]), concatenated(values[count:] or values[:1])

    def step(state: Any, x: Any) -> tuple[Any, Tensor]:
        return with_params(state, x, ())

    return with_params if has_params else step


def concatenated(outputs: Sequence[Tensor]) -> Tensor:
    """Several tensors as one vector, or a single one as it is."""
    return outputs[0] if len(outputs) == 1 else torch.cat([x.reshape(-1) for x in outputs])


def _record(name: str, fields: Mapping[Node, str]) -> type:
    specs = [(field, Annotated[Tensor, _spec(d.shape, name)]) for d, field in fields.items()]
    record: Any = NamedTuple(name, specs)  # type: ignore[misc]
    return cast(type, record)


def _spec(shape: Shape, kind: str) -> TensorSpec:
    role = {"State": "memory", "Inputs": "value", "Params": "weight"}[kind]
    return TensorSpec(" ".join(map(str, shape)), role)


def _annotated(step: Callable[..., Any], records: Sequence[type], outputs: Sequence[Value]) -> Callable[..., Any]:
    """A step with the annotations of a cell."""
    size = sum(torch.Size(value.shape).numel() for value in outputs)
    shape = outputs[0].shape if len(outputs) == 1 else (size,)
    result = tuple[records[0], Annotated[Tensor, _spec(shape, "Inputs")]]  # type: ignore[valid-type]
    step.__annotations__ = {**dict(zip(("state", "x", "params"), records, strict=False)), "return": result}
    return step
