"""Errors in one form: the requirement, the value, and the remedy."""

import math
from collections.abc import Iterable
from difflib import get_close_matches

LONGEST, LONGEST_VALUE = 1000, 300
"""Maximum length of a message, and of the value in it. A longer text loses its middle."""


class InputError(ValueError):
    """Invalid input. The message names the parameter, the requirement, the value and the remedy.

    It is one line of at most `LONGEST` characters.

    Args:
        message: Message.
    """

    def __init__(self, message: str) -> None:
        super().__init__(in_one_line(message, LONGEST))


def in_one_line(text: object, longest: int) -> str:
    """A text without line breaks, its middle left out where it is longer.

    >>> in_one_line([[1, 2], [3, 4], [5, 6]], longest=16)
    '[[1, 2 ... , 6]]'
    """
    line = " ".join(str(text).split())
    if len(line) <= longest:
        return line
    each_end = (longest - len(" ... ")) / 2
    return f"{line[: math.ceil(each_end)]} ... {line[-math.floor(each_end) :]}"


class ProcessDied(Exception):
    """A process of a distributed run ended, so the others stopped. The run can be resumed from its last checkpoint."""


def invalid(parameter: str, requirement: str, got: object, remedy: str = "") -> InputError:
    """The error `<parameter> must be <requirement>, got <got>. <remedy>`, to be raised by the caller.

    >>> raise invalid("heads", "at least 1", 0, "Use num_heads=1 for a single memory.")
    Traceback (most recent call last):
        ...
    fastweights.core.errors.InputError: heads must be at least 1, got 0. Use num_heads=1 for a single memory.
    """
    return InputError(f"{parameter} must be {requirement}, got {in_one_line(got, LONGEST_VALUE)}. {remedy}".rstrip())


def require(holds: bool, parameter: str, requirement: str, got: object, remedy: str = "") -> None:
    """Raises `invalid(parameter, requirement, got, remedy)` unless `holds`.

    Python evaluates the arguments in either case. Raise `invalid(...)` inside an `if` where calls are frequent or the
    message is expensive.

    >>> require(0 >= 1, "heads", "at least 1", 0)
    Traceback (most recent call last):
        ...
    fastweights.core.errors.InputError: heads must be at least 1, got 0.
    """
    if not holds:
        raise invalid(parameter, requirement, got, remedy)


MANY, NEAR = 20, 4
"""Number of names that a message lists at most, and how many it lists of more."""

CUTOFF = 0.5
"""Similarity of names, from 0 to 1, from which one may be meant by the other."""


def require_name(kind: str, name: str, known: Iterable[str]) -> None:
    """Raises unless `name` is known; lists the known names, or of many the nearest ones.

    >>> require_name("rule", "detla", ["delta", "sum"])
    Traceback (most recent call last):
        ...
    fastweights.core.errors.InputError: rule must be one of delta, sum, got 'detla'. Did you mean 'delta'?
    """
    known = sorted(known)
    if isinstance(name, str) and name in known:
        return
    nearest = get_close_matches(str(name), known, n=NEAR, cutoff=CUTOFF)
    listed = f"{', '.join(nearest)}, ... ({len(known)} in all)" if nearest and len(known) > MANY else ", ".join(known)
    raise invalid(kind, f"one of {listed}", repr(name), did_you_mean(str(name), known))


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """The remedy with the nearest of the known names; empty if none is near.

    >>> did_you_mean("detla", ["delta", "sum"])
    "Did you mean 'delta'?"
    """
    nearest = get_close_matches(name, known, n=1, cutoff=CUTOFF)
    return f"Did you mean '{nearest[0]}'?" if nearest else ""
