"""Settings of `loops/streamed.py`."""

import math
from dataclasses import dataclass

from fastweights.core.errors import require
from fastweights.training.settings._training import Training, require_numbers, require_positive


@dataclass(frozen=True, kw_only=True)
class Streamed(Training):
    """How a model learns to predict a stream, by AdamW with a warm-up and then half a cosine.

    Args:
        batch_size: Number of streams that the text is read in, side by side.
        window: Steps of a window.
        carry: Whether the state is carried from window to window, though its gradient is not. Else every window begins
            anew, in the report too, and what a model has read is the window alone.
        stride: In the report, for models that begin anew: how many steps one window begins behind another. Steps that
            lie in two windows are scored in the first, so that of most windows the last `stride` steps count.
        learning_rate: Peak of Adam's learning rate.
        betas: Adam's.
        warmup: Updates until the peak; then it falls as a half cosine.
        floor: Part of the peak that is left at the end.
        weight_decay: Decoupled weight decay of all matrices.
        clip: Largest norm of the gradient.
        sample: Tokens to generate at the end, if a state is carried.
        state_every: Tokens between two measurements of the norm of a carried state on test data; 0 for none.
        memories: Numbers of steps of memory, besides its own, with which a model of such layers is tested, too.
    """

    window: int
    carry: bool = True
    stride: int = 1
    learning_rate: float
    betas: tuple[float, float] = (0.9, 0.95)
    warmup: int = 0
    floor: float = 0.1
    weight_decay: float = 0.0
    clip: float = 1.0
    sample: int = 0
    state_every: int = 0
    memories: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        require_numbers(self, ("window", "stride"), 1)
        require(self.stride <= self.window, "stride", f"at most window={self.window}", self.stride)
        require(0 <= self.floor <= 1, "floor", "from 0 to 1", self.floor)
        require(all(steps >= 1 for steps in self.memories), "memories", "of at least 1 step each", self.memories)
        require(all(0 <= beta < 1 for beta in self.betas), "betas", "from 0 to below 1", self.betas)
        require_numbers(self, ("warmup", "weight_decay", "sample", "state_every"), 0)
        remedy = "A model that begins anew in every window carries no state."
        require(self.carry or not self.state_every, "state_every", "0 without carry", self.state_every, remedy)
        require_positive(self, ("learning_rate", "clip"))

    def learning_rate_at(self, step: int) -> float:
        """Linear warm-up, then half a cosine down to the floor."""
        rise = min((step + 1) / self.warmup, 1.0) if self.warmup else 1.0
        fallen = max(step - self.warmup, 0) / max(self.steps - self.warmup, 1)
        half = (1 - self.floor) / 2
        return self.learning_rate * rise * (1 - half + half * math.cos(math.pi * fallen))
