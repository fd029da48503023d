"""What the settings of all loops have in common."""

import math
from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Any, Literal, NamedTuple, Self, get_args

from fastweights.core.arguments import check_fields
from fastweights.core.errors import require

LARGEST = 2**31 - 1
"""Of what is counted: it is counted in 64 bits, and multiplied."""

LARGEST_SEED = 2**63 - 1
"""Of what torch takes as a seed."""


MOST_DEVICES = 1024


Precision = Literal["32-true", "bf16-mixed"]
PRECISIONS = get_args(Precision)


class Where(NamedTuple):
    """Where, on how much hardware and in which precision a model is trained: None for what a recipe says."""

    device: str | None = None
    devices: int | None = None
    accumulate: int | None = None
    recompute: bool | None = None
    sharded: bool | None = None
    compiled: bool | None = None
    precision: str | None = None

    def given(self) -> dict[str, Any]:
        """What is not left to the recipe."""
        return {name: value for name, value in self._asdict().items() if value is not None}


ANY_TIME = tuple(name for name in Where._fields if name != "precision")
"""What makes no other model: a run may go on with another value of it."""


BEFORE = {
    **{"actors": 2, "acting": "synchronous", "squares": 0.0},
    **{"bootstrap_time_limits": False, "reward_scale": 1.0, "decay": 0, "state_every": 0, "test_curve": False},
    **{"environments": 0, "test_episodes": 0, "keep": "best"},
}
"""Settings that runs may be older than, with the values that these runs were trained with."""


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


def decayed(rate: float, step: int, steps: int, decay: int) -> float:
    """A learning rate that is constant and then falls on a line to 0, over the last `decay` of all training steps."""
    return rate * min((steps - step) / decay, 1.0) if decay else rate


@dataclass(frozen=True, kw_only=True)
class Training:
    """How long to train, how often to look, and where.

    Args:
        steps: Largest number of updates.
        batch_size: Sequences an update.
        evaluate_every: Updates between two evaluations on validation data, each with a checkpoint.
        patience: Evaluations without a better one after which training stops; 0 for never.
        seed: Seed of the initial weights, of the order of the data and of dropout.
        device: Where to train: "auto", "cpu", "cuda", "mps".
        devices: Processes that share every batch, each with a device, or with its part of the cores.
        accumulate: Parts that every device takes its batch in, one after the other: less memory, the same update.
        recompute: Whether activations inside blocks are computed again on the way back, in place of being kept.
        sharded: Whether each of several devices keeps a part of the weights and moments, in place of all of them.
        compiled: Whether torch.compile makes a program of every block, which takes a minute and can be slower on a CPU.
        precision: "32-true", or "bf16-mixed" for half precision outside the memories.
    """

    steps: int
    batch_size: int
    evaluate_every: int
    patience: int = 0
    seed: int = 1
    device: Literal["auto", "cpu", "cuda", "mps"] = "auto"
    devices: int = 1
    accumulate: int = 1
    recompute: bool = False
    sharded: bool = False
    compiled: bool = False
    precision: Precision = "32-true"

    @classmethod
    def among(cls, flags: Any) -> Self:
        """Those of a recipe's flags that are settings of training."""
        return cls(**{field.name: getattr(flags, field.name) for field in fields(cls)})

    def __post_init__(self) -> None:
        check_fields(self)
        require_numbers(self, ("steps", "batch_size", "evaluate_every"), 1)
        require_numbers(self, ("patience",), 0)
        require_numbers(self, ("devices",), 1, MOST_DEVICES)
        require_numbers(self, ("accumulate",), 1)
        parts = self.devices * self.accumulate
        of = "the number of devices" + (" times that of parts to accumulate" if self.accumulate > 1 else "")
        require(self.batch_size % parts == 0, "batch_size", f"a multiple of {parts}, {of}", self.batch_size)
        require_numbers(self, ("seed",), 0, LARGEST_SEED)
