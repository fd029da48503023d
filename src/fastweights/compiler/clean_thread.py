"""Runs functions in a clean thread: modes, dispatch keys and grad mode belong to a thread, and do not apply there."""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Generic, TypeVar

Thing = TypeVar("Thing")
Result = TypeVar("Result")


class PerProcess(Generic[Thing]):
    """An object that a forked child process must not share with its parent, such as a lock or a thread pool.

    The threads of the parent do not exist in the child, so a lock that they hold would never be released there. The
    child process gets an object of its `own`.
    """

    def __init__(self, make: Callable[[], Thing]) -> None:
        self.make = make
        self.renew()
        os.register_at_fork(after_in_child=self.renew)

    def renew(self) -> None:
        self.own = self.make()


# Threads do not end with their work: PyTorch 2.11 built for CUDA crashes without a GPU in traces after the end of a
# thread that has traced. A new thread starts if no other is idle, since a function in a clean thread may start another.
THREADS = PerProcess(partial(ThreadPoolExecutor, max_workers=32, thread_name_prefix="fastweights"))


def run_in_clean_thread(function: Callable[..., Result], *arguments: Any) -> Result:
    """The result of a function that runs in a clean thread. An error of the function is raised."""
    return THREADS.own.submit(function, *arguments).result()
