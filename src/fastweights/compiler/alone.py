"""A thread of one's own: modes, dispatch keys and grad mode belong to a thread, and a caller may be in any of them."""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

Result = TypeVar("Result")


class _Threads:
    """Threads that stay when their work is done: PyTorch 2.11 built for CUDA crashes without a GPU, in whatever is
    traced after a thread that traced has ended. A child of a fork gets new ones: it has none of its parent's."""

    def __init__(self) -> None:
        self.renew()
        os.register_at_fork(after_in_child=self.renew)

    def renew(self) -> None:
        # Threads start when no other is idle. What runs alone may ask for something else to run alone, a few deep.
        self.pool = ThreadPoolExecutor(max_workers=32, thread_name_prefix="fastweights")


THREADS = _Threads()


def alone(function: Callable[..., Result], *arguments: Any) -> Result:
    """What a function returns or raises where nothing is switched on."""
    return THREADS.pool.submit(function, *arguments).result()
