"""How a process that trains gets its memory from the system."""

import ctypes

TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3
"""Names of glibc's malloc.h."""
NEVER = 2**31 - 1


def keep_freed_memory() -> None:
    """Has the C library keep what is freed for what is wanted next; nothing where it is not glibc.

    Else every tensor above some megabytes is handed back to the system as it dies, and the next one comes as pages that
    the system clears, one fault each, in every update: a third of the time of a network for pictures.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return
    mallopt(MMAP_THRESHOLD, NEVER)
    mallopt(TRIM_THRESHOLD, NEVER)
