"""A thread of one's own: modes, dispatch keys and grad mode belong to a thread, and a caller may be in any of them."""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Generic, TypeVar

Thing = TypeVar("Thing")
Result = TypeVar("Result")


class PerProcess(Generic[Thing]):
    """Something that a child of a fork must not share: it has none of its parent's threads, and what they hold, nobody
    would ever release there. It makes its `own`."""

    def __init__(self, make: Callable[[], Thing]) -> None:
        self.make = make
        self.renew()
        os.register_at_fork(after_in_child=self.renew)

    def renew(self) -> None:
        self.own = self.make()


# Threads stay when their work is done: PyTorch 2.11 built for CUDA crashes without a GPU, in whatever is traced after a
# thread that traced has ended. One starts when no other is idle: what runs alone may ask for something else to run so,
# a few deep.
THREADS = PerProcess(partial(ThreadPoolExecutor, max_workers=32, thread_name_prefix="fastweights"))


def alone(function: Callable[..., Result], *arguments: Any) -> Result:
    """What a function returns or raises where nothing is switched on."""
    return THREADS.own.submit(function, *arguments).result()
