"""Cells and models whose state has the memory and its last write, erasure and read, for the page to draw."""

import types
from copy import deepcopy
from typing import Annotated, Any, NamedTuple

from playground_memories import Memory
from torch import Tensor

from fastweights import Cell
from fastweights.layers.base.cell_layer import CellLayer
from fastweights.layers.base.initial_state import InitialState
from fastweights.models import LanguageModel
from fastweights.signature import Output, TensorSpec

VIEWS = ("memory", "written", "erased", "read")
"""Tensors that the state has in addition: new memory = old memory + written - erased, and the output of the cell."""


def watched_model(model: LanguageModel, memory: Memory) -> LanguageModel:
    """A copy of a model with watched cells. Its outputs are those of the model."""
    copy = deepcopy(model)
    for layer in copy.modules():
        if isinstance(layer, CellLayer):
            layer.cell = watched_cell(layer.cell, memory)
            layer.start = InitialState.of_heads(layer.cell, layer.slow_net.num_heads, layer.slow_net.sizes, "zero")
    return copy


def watched_cell(cell: Cell, memory: Memory) -> Cell:
    """A cell with `VIEWS` in its state."""
    State, name = _state(cell, memory.matrix), memory.matrix

    def step(state: Any, x: Any, *params: Any) -> Any:
        old = cell.State(*state[: -len(VIEWS)])
        new, y = cell.step(old, x, *params)
        written = memory.written(name, cell, old, x, params)
        erased = written - (getattr(new, name) - getattr(old, name))
        # The state of a self-referential cell is the difference from a parameter of the same name.
        whole = getattr(new, name) + getattr(params[0], name, 0) if params else getattr(new, name)
        return State(*new, whole, written, erased, y), y

    def with_params(state: Any, x: Any, params: Any) -> Any:
        return step(state, x, params)

    def without_params(state: Any, x: Any) -> Any:
        return step(state, x)

    return _annotated(without_params if cell.Params is None else with_params, cell, State)


def _state(cell: Cell, matrix: str) -> Any:
    """The type of the state with `VIEWS`."""
    own = {name: Annotated[Tensor, slot] for name, slot in cell.slots["State"].items()}
    seen = Annotated[Tensor, TensorSpec(cell.slots["State"][matrix].axes, "memory")]
    return NamedTuple("State", [*own.items(), *((view, seen) for view in VIEWS[:-1]), (VIEWS[-1], Output)])


def _annotated(step: Any, cell: Cell, State: Any) -> Cell:
    """The cell of a step, with the inputs, parameters and output of another cell."""
    names = ("state", "x", "params") if cell.Params else ("state", "x")
    records = zip(names, (State, cell.Inputs, cell.Params), strict=False)
    returns = types.GenericAlias(tuple, (State, Annotated[Tensor, cell.output]))
    step.__annotations__ = {**dict(records), "return": returns}
    step.__name__ = f"watched_{cell.name.replace('-', '_')}"
    return Cell.from_function(step)
