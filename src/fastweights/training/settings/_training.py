"""Settings that all loops share."""

import math
from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Any, Literal, NamedTuple, Self, get_args

from fastweights.core.arguments import check_fields
from fastweights.core.errors import require

LARGEST = 2**31 - 1
"""Maximum of counts, whose products must fit into 64 bits."""

LARGEST_SEED = 2**63 - 1
"""Maximum seed of torch."""


MOST_DEVICES = 1024


Precision = Literal["32-true", "bf16-mixed"]
PRECISIONS = get_args(Precision)


class Hardware(NamedTuple):
    """Device, processes, memory options and precision of training; None for the default of a recipe."""

    device: str | None = None
    devices: int | None = None
    gradient_accumulation_steps: int | None = None
    gradient_checkpointing: bool | None = None
    fsdp: bool | None = None
    compile: bool | None = None
    precision: str | None = None

    def specified(self) -> dict[str, Any]:
        """The settings that are not None."""
        return {name: value for name, value in self._asdict().items() if value is not None}


HARDWARE = (*Hardware._fields, "cuda_graph")
"""Settings of the hardware. The last one is of language modelling only."""

ANY_TIME = tuple(name for name in HARDWARE if name != "precision")
"""Settings that do not change the model, so that a run may be resumed with another value."""


BEFORE = {
    **{"num_actors": 2, "mode": "synchronous", "initial_square_avg": 0.0, "warmup_steps": 0},
    **{"bootstrap_time_limits": False, "reward_scale": 1.0, "decay": 0, "state_every": 0, "test_curve": False},
    **{"environments": 0, "test_episodes": 0, "keep": "best", "optimizer": "adamw"},
}
"""Values of newer settings in runs that were trained before the settings existed."""


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


def warmed_up(rate: float, step: int, warmup_steps: int) -> float:
    """A learning rate that rises linearly over the first `warmup_steps` training steps and is constant after them."""
    return rate * min((step + 1) / warmup_steps, 1.0) if warmup_steps else rate


def decayed(rate: float, step: int, steps: int, decay: int) -> float:
    """A learning rate that is constant and falls linearly to 0 over the last `decay` training steps."""
    return rate * min((steps - step) / decay, 1.0) if decay else rate


@dataclass(frozen=True, kw_only=True)
class Training:
    """Length, evaluation and hardware of training.

    Args:
        steps: Maximum number of training steps.
        batch_size: Number of sequences per training step.
        evaluate_every: Number of training steps between evaluations on validation data. Each evaluation writes a
            checkpoint.
        patience: Number of evaluations without improvement before training stops (early stopping); 0 for no early
            stopping.
        seed: Random seed of the initial weights, the order of the data and dropout.
        device: Device of training; "auto" for a GPU if there is one.
        devices: Number of processes that share each batch, with one device or a part of the CPU cores each.
        gradient_accumulation_steps: Number of gradient accumulation steps per batch. More steps need less memory.
        gradient_checkpointing: Gradient checkpointing: less memory, by recomputing activations of blocks in the
            backward pass.
        fsdp: Fully sharded data parallel training (FSDP): weights and optimiser state are sharded over the devices.
        compile: Compilation of blocks by torch.compile. It takes a minute, and can make training on a CPU slower.
        precision: Numerical precision; "bf16-mixed" for mixed precision, with the states of layers in float32.
    """

    steps: int
    batch_size: int
    evaluate_every: int
    patience: int = 0
    seed: int = 1
    device: Literal["auto", "cpu", "cuda", "mps"] = "auto"
    devices: int = 1
    gradient_accumulation_steps: int = 1
    gradient_checkpointing: bool = False
    fsdp: bool = False
    compile: bool | None = False
    precision: Precision = "32-true"

    @classmethod
    def among(cls, flags: Any) -> Self:
        """Selects the settings of training among the flags of a recipe."""
        return cls(**{field.name: getattr(flags, field.name) for field in fields(cls)})

    def __post_init__(self) -> None:
        check_fields(self)
        require_numbers(self, ("steps", "batch_size", "evaluate_every"), 1)
        require_numbers(self, ("patience",), 0)
        require_numbers(self, ("devices",), 1, MOST_DEVICES)
        require_numbers(self, ("gradient_accumulation_steps",), 1)
        parts = self.devices * self.gradient_accumulation_steps
        accumulates = self.gradient_accumulation_steps > 1
        of = f"the number of devices{' times gradient_accumulation_steps' if accumulates else ''}"
        require(self.batch_size % parts == 0, "batch_size", f"a multiple of {parts}, {of}", self.batch_size)
        require_numbers(self, ("seed",), 0, LARGEST_SEED)
