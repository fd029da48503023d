"""Configuration of the memory allocator for training."""

import ctypes

TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3
"""Constants of glibc's malloc.h."""
NEVER = 2**31 - 1


def use_arena_allocator() -> None:
    """Makes glibc reuse freed memory; does nothing with other C libraries.

    By default, tensors above some megabytes are returned to the system when they are freed. The next tensor then needs
    new pages with one page fault each, which takes a third of the training time of a convolutional network.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return
    mallopt(MMAP_THRESHOLD, NEVER)
    mallopt(TRIM_THRESHOLD, NEVER)
