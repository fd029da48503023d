"""The chunkwise backend: chunks of time steps as matrix products, for affine states."""

from fastweights.backends.chunkwise.chunkwise import (
    Segment,
    cost,
    describe,
    fast_path,
    run,
    segment,
    unsupported_reason,
)

__all__ = ["Segment", "cost", "describe", "fast_path", "run", "segment", "unsupported_reason"]
