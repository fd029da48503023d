"""Checks that invalid calls raise an `InputError`."""

from collections.abc import Callable, Iterator
from dataclasses import fields
from functools import partial
from typing import Any, Literal, get_args, get_origin, get_type_hints

from fastweights.core.errors import InputError
from fastweights.tasks import Task


def assert_refused(call: Callable[[], object], subject: str) -> None:
    """Raises unless a call raises `InputError`."""
    try:
        call()
    except InputError:
        return
    raise AssertionError(f"{subject}: accepted")


def assert_bad_options_are_refused(make: Callable[..., Task]) -> None:
    """Asserts that options outside their range and unknown names raise an `InputError`."""
    for options in _bad_options(type(make())):
        assert_refused(partial(make, **options), f"the options {options}")


def _bad_options(task: type[Task]) -> Iterator[dict[str, Any]]:
    hints = get_type_hints(task)
    for field in fields(task):  # type: ignore[arg-type]
        hint = hints[field.name]
        if hint is int:
            yield {field.name: -1}
        elif get_origin(hint) is Literal:
            yield {field.name: get_args(hint)[0] + "x"}
        elif hint == tuple[int, int, int]:
            yield from ({field.name: sizes} for sizes in ((0, 1, 1), (1, 1), (1, 1, -1)))
