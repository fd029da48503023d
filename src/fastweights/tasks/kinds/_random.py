"""Random numbers that are the same on any platform."""

import numpy as np

from fastweights.core.errors import require

TRAINING, VALIDATION, TEST, ORDER = range(4)
"""Which stream of random numbers: each has its own, so that no split depends on the size of another."""


def random_stream(seed: int, split: int, step: int = 0) -> np.random.Generator:
    """Random numbers that depend on the seed, the split and the step alone, on any platform."""
    require(seed >= 0, "seed", "at least 0", seed)
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed, spawn_key=(split, step))))
