"""Cells: one time step of one head, from whose annotated signature everything else is derived."""

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
from fastweights.inner.step import MemoryParts, step_of
from fastweights.registry import CELLS, RULES, hyphens, names
from fastweights.signature import Key, KeyMaps, Matrix, TensorSpec, Value, is_slot, slot_of, slots_of
from fastweights.state import register_state


class InnerCell(NamedTuple):
    """A cell whose inputs are prepared by another cell: the inner cell, and the function that prepares its inputs.

    `prepare` takes the inputs of one step of one head, or of all steps and heads: it acts on the last axes.
    """

    cell: "Cell"
    prepare: Callable[[Any], Any]


@dataclass(frozen=True)
class Cell:
    """One time step of one head, with the axes and roles of its tensors.

        state_t, y_t = step(state_(t-1), x_t)

    Create a cell with `Cell.from_name`, `Cell.from_function` or `Cell.from_loss`. `State`, `Inputs` and `Params` are
    NamedTuples whose annotations give axes and roles. Pickling stores the import path of the function. Copying returns
    the cell itself.

    Attributes:
        name: Name of the cell.
        function: Function that defines the cell: the step itself, or the rule that the step applies.
        step: Function `(state, x) -> (state, y)`, or `(state, x, params) -> (state, y)` with slow weights inside the
            step.
        State: Type of the state.
        Inputs: Type of the inputs.
        Params: Type of the slow weights inside the step. None: there are none.
        slots: Axes and roles of the tensors, by record ("State", "Inputs", "Params") and field.
        output: Axes and role of the output y.
        key_maps: Default feature map and normaliser of the keys.
        summary: Docstring of the function.
        inner_cell: Cell whose inputs this cell prepares. None: there is none.
        key: Import path of the function, with a number for functions that share it.
        rates: Learning rates that the step computes itself, see `fastweights.signature.computes_rates`. None: none.

    Example:
        >>> Cell.from_name("delta").Inputs._fields
        ('q', 'k', 'v', 'beta')
    """

    name: str
    function: Callable[..., Any]
    """The function that defines the cell: the step itself, or the rule that the step applies."""
    step: Callable[..., tuple[Any, Tensor]]
    State: type
    Inputs: type
    Params: type | None
    slots: dict[str, dict[str, TensorSpec]]
    output: TensorSpec
    key_maps: KeyMaps
    """Feature map and normaliser of its keys by default."""
    summary: str
    inner_cell: InnerCell | None
    key: str
    """The address of the function, with a number for those that share it: what a traced program calls the cell."""
    rates: Callable[..., Mapping[str, Tensor]] | None = None
    """The learning rates that the step computes itself, by name, from what the step is given: see `computes_rates`."""

    def __call__(self, *args: Any) -> tuple[Any, Tensor]:
        return self.step(*args)

    def __copy__(self) -> "Cell":
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> "Cell":
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        address = address_of(self.function)
        if address:
            return _cell_at, (address, self.inner_cell and self.inner_cell.cell)
        remedy = "Define it at the top level of a module, or in a `family`, or save state_dict() instead."
        require(
            _can_be_pickled(self.function), "cell", "a cell whose function other processes can import", self.key, remedy
        )
        return Cell.from_function, (self.function,)

    @property
    def example_sizes(self) -> dict[str, int]:
        """A size for every axis: all different, and as small as possible."""
        axes = "".join(slot.axes for record in self.slots.values() for slot in record.values())
        letters = dict.fromkeys(letter for letter in axes if letter.isalpha())
        return {letter: size for size, letter in enumerate(letters, start=3)}

    @staticmethod
    def names() -> list[str]:
        """Names of all cells of the library, including one for every rule.

        Returns:
            The sorted names.
        """
        return names("cells")

    @staticmethod
    @checked
    def from_name(name: str) -> "Cell":
        """Returns a cell of the library.

        Args:
            name: Name from `fastweights list cells`.

        Returns:
            The cell: `cells/NAME.py`, or the memory with the rule `rules/NAME.py`.

        Raises:
            InputError: there is no such cell.
        """
        require_name("cell", hyphens(name), Cell.names())
        folder = CELLS if hyphens(name) in CELLS.names() else RULES
        return Cell.from_function(folder.load(name))

    @staticmethod
    def of_key(key: str) -> "Cell":
        """Returns the cell with this `key`: an existing one, or that of the function at this import path.

        Args:
            key: Key of a cell.

        Returns:
            The cell.

        Raises:
            InputError: the function is in a module that this process has not imported, or is not there.
        """
        return _CELLS[key] if key in _CELLS else Cell.from_function(find_imported(key))

    @staticmethod
    def from_function(source: "str | Callable[..., Any] | Cell") -> "Cell":
        """Returns the cell of a step, of a rule, or of a name.

        A rule `(W, ...) -> W` becomes a memory whose output is `W q`.

        Args:
            source: Step `(state, x) -> (state, y)`, rule `(W, ...) -> W`, `Cell`, name of a cell of the library, or
                import path `MODULE:NAME` or `PATH.py:NAME`.

        Returns:
            The cell.

        Raises:
            InputError: the function has no valid annotations, or there is no such cell.

        Example:
            >>> Cell.from_function("delta").Inputs._fields
            ('q', 'k', 'v', 'beta')
        """
        if isinstance(source, str):
            source = find(source) if is_address(source) else Cell.from_name(source)
        if isinstance(source, Cell):
            return source
        requirement = "a function, a Cell or a name"
        require(callable(source), "cell", requirement, type(source).__name__)
        require(
            isinstance(source, Hashable), "cell", requirement, f"an unhashable {type(source).__name__}", "Freeze it."
        )
        return _lift(source)

    @staticmethod
    @checked
    def from_loss(
        loss: Callable[..., Tensor],
        memory: Callable[..., Tensor] = inner.linear,
        retention: Callable[..., Tensor] = inner.identity,
        optimiser: Callable[..., Tensor] = inner.sgd,
        link: Callable[[Tensor], Tensor] = inner.identity,
        *,
        decay_before_gradient: bool = True,
        steps: Size = 1,
        learned_start: bool = False,
    ) -> "Cell":
        """Returns the cell of a memory that minimises a loss while it reads.

            W <- R(W)
            W <- W + O(grad_W L)

        R is the retention, O the optimiser and L the loss. Further annotated parameters of a part become inputs of the
        cell: see `fastweights.inner`.

        Args:
            loss: Function `(y, v) -> scalar` of the value recalled for the key k and the target value, and any further
                inputs.
            memory: Function `(W: Matrix, k: Key) -> Value` of its annotated matrices and the key. The output reads it
                with the query.
            retention: Function `(W, ...) -> W`, the decay of every matrix.
            optimiser: Function `(gradient, beta: Rate) -> change`, or `(gradient, last, ...) -> change` with the
                previous change.
            link: Function from the stored matrices to the weights of the memory, as in mirror descent.
            decay_before_gradient: Whether the gradient is taken after the retention, or before it.
            steps: Number of optimiser steps per token.
            learned_start: Whether the matrices start at slow weights, or at 0.

        Returns:
            The cell.

        Raises:
            InputError: the loss is no scalar, the optimiser takes no rate, or a part is not annotated.

        Example:
            >>> Cell.from_loss(inner.l2, retention=inner.scalar_decay).Inputs._fields
            ('q', 'k', 'v', 'decay', 'beta')
        """
        parts = MemoryParts(loss, memory, retention, optimiser, link)
        return Cell.from_function(step_of(parts, decay_before_gradient, steps, learned_start))


_CELLS: dict[str, Cell] = {}


def _can_be_pickled(function: Callable[..., Any]) -> bool:
    """Whether a callable can be pickled, as objects and `functools.partial` can if their parts can."""
    try:
        pickle.dumps(function)
    except (pickle.PicklingError, AttributeError, TypeError, InputError):
        return False
    return True


def _cell_at(address: str, inner: Cell | None = None) -> Cell:
    """Loads a pickled cell. `inner` only makes pickle load the inner cell, and so its module, first."""
    return Cell.from_function(find(address))


@cache
def _lift(function: Callable[..., Any]) -> Cell:
    hints, result = _annotations(function)
    first = next(iter(hints.values()), None)
    remedy = (
        "Annotate it as a rule (W: Matrix, k: Key, ...) -> Matrix, or as a step (state: State, x: Inputs) -> "
        "tuple[State, Value] with NamedTuples of annotated fields."
    )
    fits = is_slot(first) or all(hasattr(hint, "_fields") for hint in [*list(hints.values())[:2], first])
    require(fits, "cell", "annotated with axes and roles", _name(function), remedy)
    return _of_rule(function, hints) if is_slot(first) else _of_step(function, hints, result, remedy)


def _annotations(function: Callable[..., Any]) -> tuple[dict[str, Any], Any]:
    """The annotations of all parameters that must be given, or that are tensors, and of the result."""
    require(callable(function), "cell", "a function", type(function).__name__)
    try:
        hints = get_type_hints(_annotated(function), include_extras=True)
        target = function if isinstance(function, partial) else _annotated(function)
        parameters = inspect.signature(target).parameters.values()
    except (TypeError, ValueError, NameError) as error:
        raise InputError(f"cell must be a function whose annotations can be read, got {function!r}: {error}.") from None
    annotations = {p.name: hints.get(p.name) for p in parameters if p.default is p.empty or is_slot(hints.get(p.name))}
    return annotations, hints.get("return")


def _annotated(function: Any) -> Any:
    """The function that holds the annotations of a callable."""
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
    output: TensorSpec,
) -> Cell:
    kinds = zip(("State", "Inputs", "Params"), records, strict=True)
    all_slots = {kind: slots_of(kind, record) for kind, record in kinds if record is not None}
    key = _key(function)
    key_maps, summary = getattr(function, "key_maps", KeyMaps()), function.__doc__ or ""
    inner, rates = getattr(function, "inner_cell", None), getattr(function, "rates", None)
    cell = Cell(_name(function), function, step, *records, all_slots, output, key_maps, summary, inner, key, rates)
    register_state(cell.State)
    for kind in all_slots:
        if address_of(getattr(cell, kind)) == "":
            _pickle_by_cell(cell, kind)
    return register(cell)


def _pickle_by_cell(cell: Cell, kind: str) -> None:
    """Pickles instances of a record that other processes cannot import as a record of a cell."""
    # Registered with Python, not set on the class: a step refers to its records, which must stay unchanged.
    copyreg.pickle(getattr(cell, kind), lambda values: (_record_of, (cell, kind, tuple(values))))


def _record_of(cell: Cell, kind: str, values: tuple[Any, ...]) -> Any:
    return getattr(cell, kind)(*values)


def register(cell: Cell) -> Cell:
    """Registers a cell for `Cell.of_key`."""
    _CELLS[cell.key] = cell
    return cell


def _key(function: Callable[..., Any]) -> str:
    name = address_of(function) or f"{function.__module__}:{getattr(function, '__qualname__', _name(function))}"
    taken = sum(key == name or key.startswith(f"{name}#") for key in _CELLS)
    return f"{name}#{taken}" if taken else name


class MemoryState(NamedTuple):
    """State of a memory with one rule."""

    W: Matrix


def _of_rule(rule: Callable[..., Tensor], hints: Mapping[str, Any]) -> Cell:
    (memory, matrix), *instructions = hints.items()
    axes = slot_of(matrix, memory).axes
    require(axes == "V K", memory, "annotated as a Matrix", f"axes '{axes}'", "Write a step for other states.")
    require("q" not in hints, "q", "left out, since it names the query", _name(rule), "Give it another name.")
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

    They have its dtype, but at least float32, since sums over time lose accuracy in half precision.
    """
    dtype = torch.promote_types(like.dtype, torch.float32)
    for letter in letters(cell, "State"):
        if letter not in sizes:
            raise invalid(
                "state", f"given, since only the state has the size {letter}", None, "Begin with one of zeros."
            )
    shapes = [leading + slot.shape(sizes) for slot in cell.slots["State"].values()]
    return cell.State(*(torch.zeros(shape, dtype=dtype, device=like.device) for shape in shapes))


def letters(cell: Cell, kind: str) -> set[str]:
    """The letters of all axes of the "State", the "Inputs" or the "Params"."""
    return {letter for slot in cell.slots.get(kind, {}).values() for letter in slot.axes if letter.isalpha()}


def examples(
    cell: Cell, sizes: Mapping[str, int], dtype: torch.dtype, device: torch.device | None = None, value: float = 0.5
) -> list[Any]:
    """State, inputs and, if any, params of one step of one head, with every tensor filled with one number."""
    kinds = (("State", cell.State), ("Inputs", cell.Inputs), ("Params", cell.Params))
    return [
        record(
            *(torch.full(slot.shape(sizes), value, dtype=dtype, device=device) for slot in cell.slots[kind].values())
        )
        for kind, record in kinds
        if record is not None
    ]
