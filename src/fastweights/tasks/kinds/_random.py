"""Platform-independent random numbers."""

import numpy as np

from fastweights.core.errors import require

TRAINING, VALIDATION, TEST, ORDER = range(4)
"""Indices of random streams: each split has its own, so that none depends on the size of another."""


def random_stream(seed: int, split: int, step: int = 0) -> np.random.Generator:
    """A generator that depends only on the seed, the split and the step, on any platform."""
    require(seed >= 0, "seed", "at least 0", seed)
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed, spawn_key=(split, step))))
