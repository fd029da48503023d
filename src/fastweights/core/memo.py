"""Memoisation of answers that are the same for similar calls."""

from collections.abc import Callable, Hashable
from typing import TypeVar

Answer = TypeVar("Answer")

MOST = 1000
"""Number of answers after which a table is cleared, so that a program whose shapes never repeat does not grow."""


def remember(table: dict[Hashable, Answer], key: Hashable, work_out: Callable[[], Answer]) -> Answer:
    """Returns `table[key]`, computed if it is missing.

    >>> squares = {}
    >>> remember(squares, 3, lambda: 9), squares
    (9, {3: 9})
    """
    if key not in table:
        answer = work_out()
        if len(table) >= MOST:
            table.clear()
        table[key] = answer
    return table[key]
