"""Settings of the training loops. Imports nothing heavy: they are the flags of the command line."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

from fastweights.errors import require

LARGEST = 2**31 - 1
"""Of what is counted: it is counted in 64 bits, and multiplied."""

LARGEST_SEED = 2**63 - 1
"""Of what torch takes as a seed."""


def require_numbers(settings: Any, names: Iterable[str], least: int, most: int = LARGEST) -> None:
    """`InputError` unless all fields of these names are from `least` to `most`."""
    for name in names:
        value = getattr(settings, name)
        require(least <= value <= most, name, f"from {least} to {most:,}", value)


def require_positive(settings: Any, names: Iterable[str]) -> None:
    """`InputError` unless all fields of these names are finite numbers above 0."""
    for name in names:
        value = getattr(settings, name)
        require(0 < value < math.inf, name, "above 0 and finite", value)


@dataclass(frozen=True, kw_only=True)
class LanguageModelling:
    """How a language model is trained.

    Args:
        steps: Number of updates.
        batch_size: Number of streams that the text is read in, side by side.
        window: Steps of a window; the state is carried from window to window, its gradient is not.
        learning_rate: Peak of Adam's learning rate.
        warmup: Updates until the peak; then it falls to a tenth as a half cosine.
        weight_decay: Decoupled weight decay of all matrices.
        clip: Largest norm of the gradient.
        evaluate_every: Updates between two evaluations, each with a checkpoint.
        patience: Evaluations without a better one after which training stops; 0 for never.
        seed: Seed of all random numbers.
        device: Where to train: "auto", "cpu", "cuda", "mps".
        precision: "32-true", or "bf16-mixed" for half precision outside the memories.
    """

    steps: int
    batch_size: int
    window: int
    learning_rate: float
    warmup: int
    weight_decay: float
    clip: float
    evaluate_every: int
    patience: int
    seed: int
    device: Literal["auto", "cpu", "cuda", "mps"]
    precision: Literal["32-true", "bf16-mixed"]

    def __post_init__(self) -> None:
        require_numbers(self, ("steps", "batch_size", "window", "evaluate_every"), 1)
        require_numbers(self, ("warmup", "weight_decay", "patience"), 0)
        require_numbers(self, ("seed",), 0, LARGEST_SEED)
        require_positive(self, ("learning_rate", "clip"))


@dataclass(frozen=True, kw_only=True)
class Supervised:
    """How a model learns a task, by Adam without a schedule.

    Args:
        steps: Largest number of updates.
        batch_size: Sequences an update.
        learning_rate: Adam's.
        betas: Adam's.
        epsilon: Adam's.
        clip: Largest norm of the gradient; 0 for no limit.
        evaluate_every: Updates between two evaluations on validation data, each with a checkpoint.
        patience: Evaluations without a better one after which training stops; 0 for never.
        goal: Validation loss at which training stops; 0 for none.
        seed: Seed of the initial weights, of the order of the data and of dropout.
        device: Where to train: "auto", "cpu", "cuda", "mps".
        precision: "32-true", or "bf16-mixed" for half precision outside the memories.
    """

    steps: int
    batch_size: int
    learning_rate: float
    evaluate_every: int
    betas: tuple[float, float] = (0.9, 0.999)
    epsilon: float = 1e-8
    clip: float = 0.0
    patience: int = 0
    goal: float = 0.0
    seed: int = 1
    device: Literal["auto", "cpu", "cuda", "mps"] = "auto"
    precision: Literal["32-true", "bf16-mixed"] = "32-true"

    def __post_init__(self) -> None:
        require_numbers(self, ("steps", "batch_size", "evaluate_every"), 1)
        require_numbers(self, ("clip", "patience", "goal"), 0)
        require_numbers(self, ("seed",), 0, LARGEST_SEED)
        require_positive(self, ("learning_rate", "epsilon"))
        require(all(0 <= beta < 1 for beta in self.betas), "betas", "from 0 to below 1", self.betas)
