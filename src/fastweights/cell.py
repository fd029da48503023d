"""A cell: one step of one head, written once, with everything else read off its signature."""

import copyreg
import inspect
import pickle
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, NamedTuple, get_args, get_type_hints

import torch
from torch import Tensor

from fastweights import inner
from fastweights.core.arguments import Size, checked
from fastweights.core.errors import InputError, invalid, require, require_name
from fastweights.core.import_path import address_of, find, find_imported, is_address
from fastweights.inner.step import Parts, step_of
from fastweights.registry import CELLS, RULES, hyphens, names
from fastweights.signature import Key, KeyMaps, Matrix, Slot, Value, is_slot, slot_of, slots_of
from fastweights.state import with_methods


class Inside(NamedTuple):
    """What is inside a cell that is given its inputs unmapped: the cell it comes from, and what maps them.

    `prepare` takes the inputs of one step of one head, or of all of them at once: it acts on last axes.
    """

    cell: "Cell"
    prepare: Callable[[Any], Any]


@dataclass(frozen=True)
class Cell:
    """One step of one head, `step(state, x) -> (state, y)`, or `step(state, x, params)` with slow weights.

    `State`, `Inputs` and `Params` are NamedTuples whose annotations give the axes, which `slots` keeps under the same
    names; `output` are the axes of y.
    Make one with `Cell.named("delta")` or, from your own function, with `Cell.of(function)`. It is pickled by where its
    function can be found, and copied as itself.
    """

    name: str
    function: Callable[..., Any]
    """What it is the cell of: the step itself, or the rule that the step applies."""
    step: Callable[..., tuple[Any, Tensor]]
    State: type
    Inputs: type
    Params: type | None
    slots: dict[str, dict[str, Slot]]
    output: Slot
    key_maps: KeyMaps
    """What its keys go through where nobody asks for something else."""
    summary: str
    inside: Inside | None
    key: str
    """The address of the function, with a number for those that share it: what a traced program calls the cell."""
    rates: Callable[..., Mapping[str, Tensor]] | None = None
    """The learning rates that the step computes itself, by name, from what the step is given: see `invents`."""

    def __call__(self, *args: Any) -> tuple[Any, Tensor]:
        return self.step(*args)

    def __copy__(self) -> "Cell":
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> "Cell":
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        address = address_of(self.function)
        if address:
            return _cell_at, (address, self.inside and self.inside.cell)
        remedy = "Define it at the top level of a module, or in a `family`, or save state_dict() instead."
        require(_is_pickled(self.function), "cell", "of a function that another process finds", self.key, remedy)
        return Cell.of, (self.function,)

    @property
    def example_sizes(self) -> dict[str, int]:
        """A size for every axis, as small as they can be and all different."""
        axes = "".join(slot.axes for record in self.slots.values() for slot in record.values())
        letters = dict.fromkeys(letter for letter in axes if letter.isalpha())
        return {letter: size for size, letter in enumerate(letters, start=3)}

    @staticmethod
    def names() -> list[str]:
        """Every cell of the library: those with a file of their own, and one for every rule."""
        return names("cells")

    @staticmethod
    @checked
    def named(name: str) -> "Cell":
        """The library's cell of this name: `cells/NAME.py`, else the memory that the rule `rules/NAME.py` makes."""
        require_name("cell", hyphens(name), Cell.names())
        folder = CELLS if hyphens(name) in CELLS.names() else RULES
        return Cell.of(folder.load(name))

    @staticmethod
    def of_key(key: str) -> "Cell":
        """The cell with this `key`: one that is already made, else that of the function at this address.

        Raises:
            InputError: the function is in a module that this process has not imported, or is not there.
        """
        return _CELLS[key] if key in _CELLS else Cell.of(find_imported(key))

    @staticmethod
    def of(source: "str | Callable[..., Any] | Cell") -> "Cell":
        """The cell of a name, of a step `(state, x) -> (state, y)`, or of a rule `(W, ...) -> W` read as `W q`.

        A name is one of the library's, or says where your function is: `MODULE:NAME` or `PATH.py:NAME`.

        >>> Cell.of("delta").Inputs._fields
        ('q', 'k', 'v', 'beta')
        """
        if isinstance(source, str):
            source = find(source) if is_address(source) else Cell.named(source)
        if isinstance(source, Cell):
            return source
        wanted = "a function, a Cell or a name"
        require(callable(source), "cell", wanted, type(source).__name__)
        require(isinstance(source, Hashable), "cell", wanted, f"an unhashable {type(source).__name__}", "Freeze it.")
        return _lift(source)

    @staticmethod
    @checked
    def from_loss(
        loss: Callable[..., Tensor],
        memory: Callable[..., Tensor] = inner.linear,
        retention: Callable[..., Tensor] = inner.as_it_is,
        optimiser: Callable[..., Tensor] = inner.descent,
        link: Callable[[Tensor], Tensor] = inner.as_it_is,
        *,
        fades_first: bool = True,
        steps: Size = 1,
        learned_start: bool = False,
    ) -> "Cell":
        """The cell of a memory that minimises a loss while it reads: W <- retention(W) + optimiser(grad_W loss), y.

        Args:
            loss: `(y, v) -> scalar`: what the memory recalls for the key k, what it should, and any inputs behind them.
            memory: `(W: Matrix, k: Key) -> Value`: its matrices, annotated, then the key. It is read by the query.
            retention: `(W, ...) -> W`: what is kept of every matrix.
            optimiser: `(gradient, beta: Rate) -> change`, or `(gradient, last, ...)`, with the change before.
            link: What makes the weights of what is kept and changed, as in mirror descent.
            fades_first: Whether the gradient is that of what retention kept, or of what was there before.
            steps: How often the optimiser steps on one token.
            learned_start: Whether the matrices start at slow weights, rather than at 0.

        Whatever a part takes beyond, annotated, is an input of the cell: see `fastweights.inner`.

        Raises:
            InputError: the loss is no scalar, the optimiser takes no rate, or a part is not annotated.

        >>> Cell.from_loss(inner.l2, retention=inner.fade).Inputs._fields
        ('q', 'k', 'v', 'decay', 'beta')
        """
        parts = Parts(loss, memory, retention, optimiser, link)
        return Cell.of(step_of(parts, fades_first, steps, learned_start))


_CELLS: dict[str, Cell] = {}


def _is_pickled(function: Callable[..., Any]) -> bool:
    """Whether it is: objects and parts of functions with arguments are, if all in them is."""
    try:
        pickle.dumps(function)
    except (pickle.PicklingError, AttributeError, TypeError, InputError):
        return False
    return True


def _cell_at(address: str, inside: Cell | None = None) -> Cell:
    """What a pickled cell is loaded with; the one inside it was loaded before, from a module that may be a user's."""
    return Cell.of(find(address))


@cache
def _lift(function: Callable[..., Any]) -> Cell:
    hints, result = _annotations(function)
    first = next(iter(hints.values()), None)
    remedy = (
        "Annotate it as a rule (W: Matrix, k: Key, ...) -> Matrix, or as a step (state: State, x: Inputs) -> "
        "tuple[State, Value] with NamedTuples of annotated fields."
    )
    fits = is_slot(first) or all(hasattr(hint, "_fields") for hint in [*list(hints.values())[:2], first])
    require(fits, "cell", "annotated with what it takes", _name(function), remedy)
    return _of_rule(function, hints) if is_slot(first) else _of_step(function, hints, result, remedy)


def _annotations(function: Callable[..., Any]) -> tuple[dict[str, Any], Any]:
    """The annotations of all parameters that must be given, or that are tensors, and of the result."""
    require(callable(function), "cell", "a function", type(function).__name__)
    try:
        hints = get_type_hints(_annotated(function), include_extras=True)
        given = function if isinstance(function, partial) else _annotated(function)
        parameters = inspect.signature(given).parameters.values()
    except (TypeError, ValueError, NameError) as error:
        raise InputError(f"cell must be a function whose annotations can be read, got {function!r}: {error}.") from None
    told = {p.name: hints.get(p.name) for p in parameters if p.default is p.empty or is_slot(hints.get(p.name))}
    return told, hints.get("return")


def _annotated(function: Any) -> Any:
    """Where the annotations of a callable are."""
    if isinstance(function, partial):
        return _annotated(function.func)
    plain = inspect.isroutine(function) or isinstance(function, type)
    return function if plain else getattr(function, "forward", function.__call__)


def _of_step(function: Callable[..., Any], hints: Mapping[str, Any], result: Any, remedy: str) -> Cell:
    result, records = get_args(result), list(hints.values())
    fits = len(result) == 2 and len(records) in (2, 3) and all(hasattr(r, "_fields") for r in records)
    require(fits, "cell", "annotated with its state, inputs and output", _name(function), remedy)
    state, inputs, params = (*records, None)[:3]
    return _cell(function, function, (state, inputs, params), slot_of(result[1], "output"))


def _cell(
    function: Callable[..., Any],
    step: Callable[..., Any],
    records: tuple[type, type, type | None],
    output: Slot,
) -> Cell:
    kinds = zip(("State", "Inputs", "Params"), records, strict=True)
    all_slots = {kind: slots_of(kind, record) for kind, record in kinds if record is not None}
    key = _key(function)
    key_maps, summary = getattr(function, "key_maps", KeyMaps()), function.__doc__ or ""
    inside, rates = getattr(function, "inside", None), getattr(function, "rates", None)
    cell = Cell(_name(function), function, step, *records, all_slots, output, key_maps, summary, inside, key, rates)
    with_methods(cell.State)
    for kind in all_slots:
        if address_of(getattr(cell, kind)) == "":
            _pickle_by_cell(cell, kind)
    return keep(cell)


def _pickle_by_cell(cell: Cell, kind: str) -> None:
    """Lets instances of a record be pickled whose class no other process finds: as the record of a cell."""
    # Told to Python, not to the class: a step reaches its records, and must be seen to reach nothing that can change.
    copyreg.pickle(getattr(cell, kind), lambda values: (_record_of, (cell, kind, tuple(values))))


def _record_of(cell: Cell, kind: str, values: tuple[Any, ...]) -> Any:
    return getattr(cell, kind)(*values)


def keep(cell: Cell) -> Cell:
    """Lets `Cell.of_key` find a cell."""
    _CELLS[cell.key] = cell
    return cell


def _key(function: Callable[..., Any]) -> str:
    name = address_of(function) or f"{function.__module__}:{getattr(function, '__qualname__', _name(function))}"
    taken = sum(key == name or key.startswith(f"{name}#") for key in _CELLS)
    return f"{name}#{taken}" if taken else name


class MemoryState(NamedTuple):
    """The state of a memory made of one rule."""

    W: Matrix


def _of_rule(rule: Callable[..., Tensor], hints: Mapping[str, Any]) -> Cell:
    (memory, matrix), *instructions = hints.items()
    axes = slot_of(matrix, memory).axes
    require(axes == "V K", memory, "annotated as a Matrix", f"axes '{axes}'", "Write a step for other states.")
    require("q" not in hints, "q", "left out: a memory is read with the query q", _name(rule), "Give it another name.")
    Inputs = NamedTuple("Inputs", [("q", Key), *instructions])  # type: ignore[misc]

    def step(state: MemoryState, x: Any) -> tuple[MemoryState, Tensor]:
        W = rule(state.W, *x[1:])
        return MemoryState(W), W @ x.q

    records = (MemoryState, Inputs, None)
    return _cell(rule, step, records, slot_of(Value, "y"))


def _name(function: Any) -> str:
    function = function.func if isinstance(function, partial) else function
    return hyphens(getattr(function, "__name__", type(function).__name__))


def initial_state(cell: Cell, sizes: dict[str, int], leading: tuple[int, ...], like: Tensor) -> Any:
    """The state before the first step: zeros with `leading` axes (`[B, H]`) on the device of `like`.

    They have its dtype, but at least float32: a memory that adds up is not kept in half precision.
    """
    dtype = torch.promote_types(like.dtype, torch.float32)
    for letter in letters(cell, "State"):
        if letter not in sizes:
            raise invalid("state", f"given, since only it tells the size {letter}", None, "Begin with one of zeros.")
    shapes = [leading + slot.shape(sizes) for slot in cell.slots["State"].values()]
    return cell.State(*(torch.zeros(shape, dtype=dtype, device=like.device) for shape in shapes))


def letters(cell: Cell, kind: str) -> set[str]:
    """The letters of all axes of the "State", the "Inputs" or the "Params"."""
    return {letter for slot in cell.slots.get(kind, {}).values() for letter in slot.axes if letter.isalpha()}


def examples(
    cell: Cell, sizes: Mapping[str, int], dtype: torch.dtype, device: torch.device | None = None, value: float = 0.5
) -> list[Any]:
    """State, inputs and, if it has any, params of one step of one head, every tensor filled with one number."""
    kinds = (("State", cell.State), ("Inputs", cell.Inputs), ("Params", cell.Params))
    return [
        record(
            *(torch.full(slot.shape(sizes), value, dtype=dtype, device=device) for slot in cell.slots[kind].values())
        )
        for kind, record in kinds
        if record is not None
    ]
