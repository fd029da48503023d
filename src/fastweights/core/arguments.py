"""Checks of arguments, derived from the annotations of a function or a dataclass."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from functools import cache, wraps
from math import inf
from numbers import Integral, Real
from types import UnionType
from typing import Annotated, Any, Literal, NamedTuple, ParamSpec, TypeVar, Union, get_args, get_origin, get_type_hints

from fastweights.core.errors import invalid
from fastweights.core.other_names import name_here, unexpected

P = ParamSpec("P")
R = TypeVar("R")


class Requirement(NamedTuple):
    """A condition on an argument beyond its type, as an annotation: `Annotated[int, Requirement(text, holds)]`."""

    text: str
    holds: Callable[[Any], bool]


def at_least(least: int) -> Requirement:
    """The requirement on a whole number to be `least` or more."""
    return Requirement(f"a whole number of at least {least}", lambda n: n >= least)


Size = Annotated[int, at_least(1)]
Count = Annotated[int, at_least(0)]
Probability = Annotated[float, Requirement("a number from 0 to 1", lambda p: 0 <= p <= 1)]
Positive = Annotated[float, Requirement("a finite number above 0", lambda x: 0 < x < inf)]
NotNegative = Annotated[float, Requirement("a finite number of at least 0", lambda x: 0 <= x < inf)]

UNFIT = object()
"""The result of `fitted` for a value that does not fit."""


def checked(function: Callable[P, R]) -> Callable[P, R]:
    """Makes a function check its arguments against its annotations before it runs.

    An `int` is any integer but no bool, and a `float` any real number but NaN; the function gets them as plain Python
    numbers. Parameters without an annotation and `*args` and `**kwargs` are not checked. Not for functions that
    `torch.compile` traces.

    Args:
        function: A function whose annotations can be evaluated.

    Raises:
        InputError: by the function that is returned, for an argument that does not fit.

    >>> @checked
    ... def zeros(size: Size) -> list[float]:
    ...     return size * [0.0]
    >>> zeros(True)
    Traceback (most recent call last):
        ...
    fastweights.core.errors.InputError: size must be a whole number of at least 1, got True.
    """
    signature = inspect.signature(function)
    open_ended = {p.name for p in signature.parameters.values() if p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD)}
    names = [name for name in signature.parameters if name not in open_ended and name != "self"]

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            bound = signature.bind(*args, **kwargs)
        except TypeError:
            _require_known(function, kwargs, names)
            return function(*args, **kwargs)  # Python's own message
        # Read at the first call: an annotation may name what its module defines further down.
        hints = _annotations_of(function)
        for name, value in bound.arguments.items():
            if name in hints and name not in open_ended:
                bound.arguments[name] = convert_argument(name, value, hints[name])
        return function(*bound.args, **bound.kwargs)

    return call


def _require_known(function: Callable[..., Any], options: Mapping[str, Any], names: Sequence[str]) -> None:
    """Raises for an option under the name that another library gives it."""
    for option in options:
        if option not in names and name_here(option, names):
            raise unexpected(option, names, function.__qualname__.removesuffix(".__init__"))


def check_fields(record: Any) -> None:
    """Raises `InputError` unless all fields of a dataclass fit their annotations; called in `__post_init__`."""
    hints = _annotations_of(record.__class__)
    for field in fields(record):
        value = getattr(record, field.name)
        object.__setattr__(record, field.name, convert_argument(field.name, value, hints[field.name]))


def fields_checked(post_init: Callable[[Any], None]) -> Callable[[Any], None]:
    """Makes the `__post_init__` of a dataclass check the types of all fields before it looks at their values."""

    @wraps(post_init)
    def check(record: Any) -> None:
        check_fields(record)
        post_init(record)

    return check


@cache
def _annotations_of(annotated: Any) -> dict[str, Any]:
    return get_type_hints(annotated, include_extras=True)


def convert_argument(name: str, value: Any, hint: Any) -> Any:
    """The value of a parameter as its annotation has it; `InputError` if it does not fit."""
    result = converted(value, hint)
    if result is UNFIT:
        numbers = isinstance(value, Sequence | Real) and not isinstance(value, str)
        remedy = f"Try torch.tensor({name})." if numbers and "a tensor" in requirement_of(hint) else ""
        raise invalid(name, requirement_of(hint), describe_value(value), remedy)
    return result


def converted(value: Any, hint: Any) -> Any:
    """The value as a plain number, or a container of such, if an annotation asks for one; `UNFIT` if it does not
    fit."""
    kind = get_origin(hint) or hint
    if kind in CONVERTERS:
        return CONVERTERS[kind](value, get_args(hint))
    return value if not isinstance(kind, type) or isinstance(value, kind) else UNFIT


def requirement_of(hint: Any) -> str:
    """An annotation in words, as `must be ...` continues."""
    kind, inside = get_origin(hint) or hint, get_args(hint)
    match kind:
        case _ if kind is Annotated:
            texts = [extra.text for extra in inside[1:] if isinstance(extra, Requirement)]
            return texts[0] if texts else requirement_of(inside[0])
        case _ if kind in (Union, UnionType):
            return " or ".join(map(requirement_of, inside))
        case _ if kind is Literal:
            return f"one of {', '.join(map(str, inside))}"
        case _ if isinstance(kind, type) and issubclass(kind, Sequence | Mapping) and kind is not str:
            each = [part for part in inside if part is not ...]
            return f"a {kind.__name__.lower()}{f' of {requirement_of(each[-1])} each' if each else ''}"
    name = str(getattr(kind, "__name__", kind))
    return WORDS.get(name, f"{'an' if name[0] in 'AEIOUaeiou' else 'a'} {name}")


WORDS = {
    "int": "a whole number",
    "float": "a number",
    "bool": "True or False",
    "str": "a string",
    "NoneType": "None",
    "Callable": "a function",
    "Tensor": "a tensor",
}
"""Types in words."""


def describe_value(value: Any) -> str:
    """A value in an error message: its kind and shape if it is a tensor or an array, else its repr."""
    if hasattr(value, "dtype") and getattr(value, "shape", ()) != ():
        kind = str(value.dtype).removeprefix("torch.")
        return f"a {type(value).__name__} {list(value.shape)} of {kind}"
    return repr(value)


def _annotated(value: Any, inside: Sequence[Any]) -> Any:
    result = converted(value, inside[0])
    holds = result is not UNFIT and all(extra.holds(result) for extra in inside[1:] if isinstance(extra, Requirement))
    return result if holds else UNFIT


def _union(value: Any, inside: Sequence[Any]) -> Any:
    return next((result for hint in inside if (result := converted(value, hint)) is not UNFIT), UNFIT)


def _literal(value: Any, choices: Sequence[Any]) -> Any:
    return value if any(type(value) is type(choice) and value == choice for choice in choices) else UNFIT


def _int(value: Any, inside: Sequence[Any]) -> Any:
    return int(value) if isinstance(value, Integral) and not isinstance(value, bool) else UNFIT


def _float(value: Any, inside: Sequence[Any]) -> Any:
    if not isinstance(value, Real) or isinstance(value, bool) or value != value:
        return UNFIT
    return value if type(value) in (int, float) else float(value)


def _mapping(value: Any, inside: Sequence[Any]) -> Any:
    if not isinstance(value, Mapping):
        return UNFIT
    keys, items = inside or (Any, Any)
    names, values = _items([*value], [keys] * len(value)), _items([*value.values()], [items] * len(value))
    return UNFIT if names is None or values is None else dict(zip(names, values, strict=True))


def _items(value: Any, hints: Sequence[Any]) -> list[Any] | None:
    """The items of a sequence under their annotations; None if one does not fit."""
    items = [converted(item, hint) for item, hint in zip(value, hints, strict=True)]
    return None if any(item is UNFIT for item in items) else items


def _sequence(value: Any, inside: Sequence[Any]) -> Any:
    if not isinstance(value, Sequence) or isinstance(value, str):
        return UNFIT
    hint = inside[0] if inside else Any
    return value if _items(value, [hint] * len(value)) is not None else UNFIT


def _tuple(value: Any, inside: Sequence[Any]) -> Any:
    """A list is taken as well: JSON and YAML have no tuples."""
    if not isinstance(value, list | tuple):
        return UNFIT
    hints = [inside[0]] * len(value) if inside[1:] == (...,) else inside
    items = _items(value, hints) if len(value) == len(hints) else None
    return UNFIT if items is None else tuple(items)


CONVERTERS: dict[Any, Callable[[Any, Sequence[Any]], Any]] = {
    Any: lambda value, inside: value,
    Annotated: _annotated,
    Union: _union,
    UnionType: _union,
    Literal: _literal,
    int: _int,
    float: _float,
    dict: _mapping,
    Mapping: _mapping,
    Sequence: _sequence,
    list: _sequence,
    tuple: _tuple,
}
"""Annotations that are more than a class, by their origin."""
