"""Shares the heads among Python threads, for kernels from a compiler without OpenMP."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from functools import partial
from itertools import pairwise

from fastweights.compiler.clean_thread import PerProcess

POOL = PerProcess(partial(ThreadPoolExecutor, thread_name_prefix="fastweights-kernel"))
"""A pool that is separate from the one in `clean_thread.py`. No task in it waits for another, so it cannot deadlock."""


def share(call: Callable[[int, int], None], num_heads: int, threads: int) -> None:
    """Runs `call(first, last)` for consecutive ranges of all heads, one range per thread.

    The function that `call` calls must release Python's lock, as functions of `ctypes` do. The result does not depend
    on the number of threads: every head is computed by the same instructions. `call` must hold a reference to all
    memory that it uses, since an interrupted caller may leave before the other threads.
    """
    bounds = [num_heads * n // threads for n in range(threads + 1)]
    own, *others = pairwise(bounds)
    futures = [POOL.own.submit(call, *bound) for bound in others]
    try:
        call(*own)
    finally:
        wait(futures)
    for future in futures:
        future.result()
