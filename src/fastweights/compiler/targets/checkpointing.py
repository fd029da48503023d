"""Gradient checkpointing over time: the forward pass keeps the state at the start of every chunk of time steps.

The backward pass computes the states inside a chunk again, from the last chunk to the first.
"""

STEPS = 64
"""Largest number of time steps in a chunk. Chunks of half the size would keep twice as many states."""
NUMBERS = 1 << 20
"""Largest number of state entries that the backward pass holds for one chunk and head: 4 MB in float32."""
LEAST = 4
"""Smallest number of time steps in a chunk, however large the state is."""


def chunk(size: int, T: int) -> int:
    """Number of time steps per chunk of a sequence of T steps, for `size` state entries per head."""
    return min(T, max(LEAST, min(STEPS, NUMBERS // max(size, 1))))


CACHED = 1 << 23
"""Largest number of state entries that the backward pass holds for one chunk and all heads on a GPU: 32 MB in float32,
less than the L2 cache of the chips since 2020. All heads are computed at once there."""
LEAST_ON_GPU = 16
"""Smallest number of time steps in a chunk on a GPU, since every chunk keeps a state."""


def chunk_on_gpu(size: int, T: int, heads: int) -> int:
    """Number of time steps per chunk on a GPU, for a number of heads counted over the batch."""
    return min(T, max(LEAST_ON_GPU, min(STEPS, CACHED // max(size * heads, 1))))
