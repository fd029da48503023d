"""A thread of one's own: modes, dispatch keys and grad mode belong to a thread, and a caller may be in any of them."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

Result = TypeVar("Result")


def alone(function: Callable[..., Result], *arguments: Any) -> Result:
    """What a function returns or raises where nothing is switched on."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(function, *arguments).result()
