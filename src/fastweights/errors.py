"""One shape for every complaint: what must hold, what came, and what to do about it."""

from collections.abc import Iterable
from difflib import get_close_matches


class InputError(ValueError):
    """Input that cannot be used. The message names the parameter, the requirement, the value and the remedy."""


class Died(Exception):
    """A process that shared a training is no more, and the others stopped. The run goes on from its last checkpoint."""


def require(holds: bool, parameter: str, requirement: str, got: object, remedy: str = "") -> None:
    """Raises `<parameter> must be <requirement>, got <got>. <remedy>` unless `holds`.

    >>> require(False, "heads", "at least 1", 0, "Use heads=1 for a single memory.")
    Traceback (most recent call last):
        ...
    fastweights.errors.InputError: heads must be at least 1, got 0. Use heads=1 for a single memory.
    """
    if not holds:
        raise InputError(f"{parameter} must be {requirement}, got {got}. {remedy}".rstrip())


MANY, NEAR = 20, 4
"""Names that a line may list, and of more than these."""


def require_name(kind: str, name: str, known: Iterable[str]) -> None:
    """Raises unless `name` is known; lists the known names, or of many the nearest ones.

    >>> require_name("rule", "detla", ["delta", "sum"])
    Traceback (most recent call last):
        ...
    fastweights.errors.InputError: rule must be one of delta, sum, got 'detla'. Did you mean 'delta'?
    """
    known = sorted(known)
    if name in known:
        return
    nearest = get_close_matches(name, known, n=NEAR, cutoff=0.5)
    remedy = f"Did you mean '{nearest[0]}'?" if nearest else ""
    listed = f"{', '.join(nearest)}, ... ({len(known)} in all)" if nearest and len(known) > MANY else ", ".join(known)
    require(False, kind, f"one of {listed}", repr(name), remedy)
