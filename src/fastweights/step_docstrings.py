"""Descriptions of the parameters of rules and cells, which follow from their annotations."""

from collections.abc import Callable, Iterable
from typing import Any, get_args, get_type_hints

from fastweights.core.docstrings import complete
from fastweights.signature import TensorSpec, is_slot, slot_of, slots

WORDS = {
    "memory": "Fast weights",
    "gram": "Sum of outer products of keys",
    "contraction": "Symmetric matrix with eigenvalues from 0 to 1",
    "count": "Whole number",
    "output": "Previous output",
    "key": "Key",
    "value": "Value",
    "angle": "Angle",
    "rate": "Rate from 0 to 1",
    "decay": "Decay factor from 0 to 1",
    "control": "Control signal, 0 or 1",
}
"""Descriptions of roles."""
RECORDS = ("before the time step", "of the time step", "with the slow weights of the step")
"""Descriptions of the state, the inputs and the parameters of a step."""


def describe_parameters(functions: Iterable[Callable[..., Any]]) -> None:
    """Adds the sections `Args:` and `Returns:` to the docstrings of rules and cells.

    Args:
        functions: Rules `(W, ...) -> W` and steps `(state, x) -> (state, y)` or `(state, x, params) -> (state, y)`.
    """
    for function in functions:
        *hints, (_, result) = get_type_hints(function, include_extras=True).items()
        described = _rule(hints, result) if is_slot(result) else _step(hints, result)
        if function.__doc__:  # empty under `python -OO`
            function.__doc__ = complete(function.__doc__, [name for name, _ in hints], described)


def _rule(hints: list[tuple[str, Any]], result: Any) -> str:
    entries = [f"    {name}: {_describe(slot_of(hint, name))}." for name, hint in hints]
    return _sections(entries, f"The new fast weights, {_axes(slot_of(result, 'result'))}.")


def _step(hints: list[tuple[str, Any]], result: Any) -> str:
    entries = [
        f"    {name}: `{record.__name__}` {role}, of one head: {_fields(record)}."
        for (name, record), role in zip(hints, RECORDS, strict=False)
        if hasattr(record, "_fields")  # others are options, which the docstring describes
    ]
    output = slot_of(get_args(result)[1], "output")
    return _sections(entries, f"The state after the time step, and the output {_axes(output)}.")


def _sections(entries: list[str], returns: str) -> str:
    return "\n".join(["", "Args:", *entries, "", "Returns:", f"    {returns}"])


def _fields(record: type) -> str:
    return ", ".join(f"{name} {_axes(slot)}" for name, slot in slots(record).items())


def _describe(slot: TensorSpec) -> str:
    return f"{WORDS[slot.kind]}, {_axes(slot)}"


def _axes(slot: TensorSpec) -> str:
    return f"`[{', '.join(slot.axes.split())}]`" if slot.axes else "a scalar"
