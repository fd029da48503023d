"""Memoisation of answers that are the same for similar calls."""

from collections.abc import Callable, Hashable
from typing import TypeVar

Answer = TypeVar("Answer")

MOST = 1000
"""Number of answers after which a table is cleared, so that a program whose shapes never repeat does not grow."""


def get_or_compute(table: dict[Hashable, Answer], key: Hashable, compute: Callable[[], Answer]) -> Answer:
    """Returns `table[key]`, computed if it is missing.

    >>> squares = {}
    >>> get_or_compute(squares, 3, lambda: 9), squares
    (9, {3: 9})
    """
    if key not in table:
        answer = compute()
        if len(table) >= MOST:
            table.clear()
        table[key] = answer
    return table[key]
