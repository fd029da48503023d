"""Answers that are remembered: what is worked out once for calls that are alike."""

from collections.abc import Callable, Hashable
from typing import TypeVar

Answer = TypeVar("Answer")

MOST = 1000
"""How many answers a table keeps before it begins anew: a program whose shapes never repeat must not grow."""


def remember(table: dict[Hashable, Answer], key: Hashable, work_out: Callable[[], Answer]) -> Answer:
    """`table[key]`, worked out if it is not there.

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
