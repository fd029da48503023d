"""Families of rules and steps: functions that return one rule or step for each choice of plain arguments."""

from collections.abc import Callable
from functools import update_wrapper
from inspect import signature
from math import isfinite
from typing import Any

from fastweights.core.arguments import checked
from fastweights.core.errors import require


class Family:
    """A function that returns a rule or a step for each choice of plain arguments. Decorate it with `family`."""

    def __init__(self, make: Callable[..., Any]) -> None:
        self.make = make
        self.members: dict[str, Any] = {}
        update_wrapper(self, make)

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        """Returns the member for these arguments, which is created once; `InputError` if they are not plain."""
        bound = signature(self.make).bind(*arguments, **named)
        bound.apply_defaults()
        fits = all(map(_is_plain, bound.args))
        kinds = "finite numbers, strings, bools, None, or tuples of them"
        require(fits, f"arguments of {self.make.__name__}", kinds, bound.args)
        # By their text: 1, 1.0 and True are equal, but give different rules.
        key = repr(bound.args)
        if key not in self.members:
            self.members[key] = self.make(*bound.args)
            self.members[key].made_by = self, bound.args
        return self.members[key]


@checked
def family(make: Callable[..., Any]) -> Family:
    """Decorates a function that returns rules or steps, so that layers that use them can be pickled and exported.

    A nested function has no name under which another process could import it. Another process creates a member of a
    family from the same arguments instead.

    Args:
        make: Function that returns a rule or a step. Its arguments must be finite numbers, strings, bools, None, or
            tuples of them.

    Returns:
        The function, which returns the same rule or step for the same arguments.

    Example:
        >>> import torch
        >>> from fastweights.signature import Key, Matrix, Value
        >>> @family
        ... def fading(decay):
        ...     def rule(W: Matrix, k: Key, v: Value) -> Matrix:
        ...         return decay * W + torch.outer(v, k)
        ...
        ...     return rule
        >>> fading(0.9) is fading(0.9)
        True
    """
    return Family(make)


def _is_plain(value: Any) -> bool:
    """Whether a value can be recovered from its text."""
    if type(value) is tuple:
        return all(map(_is_plain, value))
    return type(value) in (int, str, bool, type(None)) or (type(value) is float and isfinite(value))
