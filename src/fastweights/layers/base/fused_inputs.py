"""Cells whose step contains the feature map, the normaliser and the rate activation of its inputs."""

import types
from collections.abc import Callable
from inspect import signature
from typing import Annotated, Any, NamedTuple

from torch import Tensor

from fastweights.cell import Cell, InnerCell
from fastweights.core.family import family
from fastweights.core.import_path import address_of, find_imported
from fastweights.layers.base.slow_net import Keys
from fastweights.registry import RATE_ACTIVATIONS
from fastweights.signature import TensorSpec


def prepared_by(cell: Cell, keys: Keys, rate_activation: str) -> Cell:
    """Returns the cell whose keys and queries of size `keys.input_size`, and rates, are raw outputs of a slow network.

    A kernel then reads them once and stores no intermediate results, which would take as long as the memory itself.
    The cell is returned unchanged if its inputs need no preparation, if the feature map has parameters (random features
    must be the same for keys and queries), or if other processes cannot import the function of the cell.
    """
    roles, address = {slot.kind for slot in cell.slots["Inputs"].values()}, address_of(cell.function)
    needs_preparation = "rate" in roles or ("key" in roles and (keys.features, keys.normalised) != ("identity", "none"))
    if not (needs_preparation and address and keys.function):
        return cell
    return Cell.from_function(prepared(address, keys.features, keys.input_size, keys.normalised, rate_activation))


@family
def prepared(address: str, features: str, size: int, normalised: str, rate_activation: str) -> Callable[..., Any]:
    """The step of the cell at an import path, whose keys have `size` numbers before the feature map."""
    cell, keys = Cell.from_function(find_imported(address)), Keys(size, features, normalised)
    by_kind = {"key": keys.function, "rate": RATE_ACTIVATIONS.load(rate_activation)}
    functions = tuple(by_kind.get(slot.kind, _identity) for slot in cell.slots["Inputs"].values())
    run, Inputs = cell.step, cell.Inputs

    def prepare(x: Any) -> Any:
        return Inputs(*[function(value) for function, value in zip(functions, x, strict=True)])

    def step(state: Any, x: Any) -> Any:
        return run(state, prepare(x))

    def step_with_params(state: Any, x: Any, params: Any) -> Any:
        return run(state, prepare(x), params)

    return _annotate(step if cell.Params is None else step_with_params, cell, keys, prepare)


def _annotate(step: Any, cell: Cell, keys: Keys, prepare: Callable[[Any], Any]) -> Callable[..., Any]:
    """Sets the annotations, the name and the docstring of a step, and its inner cell."""
    names, records = signature(step).parameters, (cell.State, _raw(cell, keys), cell.Params)
    returns = types.GenericAlias(tuple, (cell.State, Annotated[Tensor, cell.output]))
    step.__annotations__ = {**dict(zip(names, records, strict=False)), "return": returns}
    step.__name__, step.__doc__ = cell.name.replace("-", "_"), cell.summary
    step.inner_cell = InnerCell(cell, prepare)
    return step


def _raw(cell: Cell, keys: Keys) -> Any:
    """The type of the raw inputs of a cell."""
    return NamedTuple("Inputs", [(name, _unmapped(slot, keys)) for name, slot in cell.slots["Inputs"].items()])


def _unmapped(slot: TensorSpec, keys: Keys) -> Any:
    """The annotation of an input before the maps. Keys whose size the feature map changes have a fixed size."""
    axes, role = slot
    if slot.kind == "key" and keys.input_size != keys.output_size:
        axes = " ".join(str(keys.input_size) if axis == "K" else axis for axis in axes.split())
    return Annotated[
        Tensor, TensorSpec(axes, role.replace(slot.kind, "value") if slot.kind in ("key", "rate") else role)
    ]


def _identity(x: Tensor) -> Tensor:
    return x
