"""Cells that are given what a slow net says as it is: feature map, normaliser and squashing are parts of their step."""

import types
from collections.abc import Callable
from inspect import signature
from typing import Annotated, Any, NamedTuple

from torch import Tensor

from fastweights.cell import Cell, Inside
from fastweights.core.family import family
from fastweights.core.import_path import address_of, find_imported
from fastweights.layers.base.slow_net import Keys
from fastweights.registry import RATE_ACTIVATIONS
from fastweights.signature import Slot


def prepared_by(cell: Cell, keys: Keys, squashing: str) -> Cell:
    """The cell that takes keys and queries of size `keys.input_size`, and rates, as a slow net says them.

    A kernel reads them once so, and writes none of what is made of them, which takes as long as the memory itself. It
    is the cell as it was if there is nothing to do to its inputs, if the feature map has numbers of its own (random
    features must be the same for keys and queries), or if other processes do not find the cell's function.
    """
    roles, address = {slot.kind for slot in cell.slots["Inputs"].values()}, address_of(cell.function)
    does = "rate" in roles or ("key" in roles and (keys.features, keys.normalised) != ("identity", "none"))
    if not (does and address and keys.function):
        return cell
    return Cell.of(prepared(address, keys.features, keys.input_size, keys.normalised, squashing))


@family
def prepared(address: str, features: str, size: int, normalised: str, squashing: str) -> Callable[..., Any]:
    """The step of the cell at an address, whose keys have `size` numbers before the feature map."""
    cell, keys = Cell.of(find_imported(address)), Keys(size, features, normalised)
    done = {"key": keys.function, "rate": RATE_ACTIVATIONS.load(squashing)}
    does = tuple(done.get(slot.kind, _as_it_is) for slot in cell.slots["Inputs"].values())
    run, Inputs = cell.step, cell.Inputs

    def prepare(x: Any) -> Any:
        return Inputs(*[do(value) for do, value in zip(does, x, strict=True)])

    def step(state: Any, x: Any) -> Any:
        return run(state, prepare(x))

    def step_with_params(state: Any, x: Any, params: Any) -> Any:
        return run(state, prepare(x), params)

    return _told(step if cell.Params is None else step_with_params, cell, keys, prepare)


def _told(step: Any, cell: Cell, keys: Keys, prepare: Callable[[Any], Any]) -> Callable[..., Any]:
    """What is read off a step."""
    names, records = signature(step).parameters, (cell.State, _raw(cell, keys), cell.Params)
    returns = types.GenericAlias(tuple, (cell.State, Annotated[Tensor, cell.output]))
    step.__annotations__ = {**dict(zip(names, records, strict=False)), "return": returns}
    step.__name__, step.__doc__ = cell.name.replace("-", "_"), cell.summary
    step.inside = Inside(cell, prepare)
    return step


def _raw(cell: Cell, keys: Keys) -> Any:
    """The inputs of a cell as a slow net says them."""
    return NamedTuple("Inputs", [(name, _unmapped(slot, keys)) for name, slot in cell.slots["Inputs"].items()])


def _unmapped(slot: Slot, keys: Keys) -> Any:
    """Keys that change their size have a fixed one."""
    axes, role = slot
    if slot.kind == "key" and keys.input_size != keys.output_size:
        axes = " ".join(str(keys.input_size) if axis == "K" else axis for axis in axes.split())
    return Annotated[Tensor, Slot(axes, role.replace(slot.kind, "value") if slot.kind in ("key", "rate") else role)]


def _as_it_is(x: Tensor) -> Tensor:
    return x
