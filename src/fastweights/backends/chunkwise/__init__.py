"""The chunkwise backend: chunks of time steps as matrix products, for affine states."""

from fastweights.backends.chunkwise.chunkwise import Stretch, cost, refusal, run, stretch, told

__all__ = ["Stretch", "cost", "refusal", "run", "stretch", "told"]
