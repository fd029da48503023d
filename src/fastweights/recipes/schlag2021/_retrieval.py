"""What the two experiments with key-value retrieval have in common: models, training and stopping."""

from collections.abc import Iterable, Mapping
from typing import Any

from fastweights.experiment import Published, Trial
from fastweights.training.settings import Supervised

TRAINING: dict[str, dict[str, Any]] = {
    "smoke": {"steps": 10, "evaluate_every": 5},
    "cpu": {"steps": 2_000, "evaluate_every": 100},
    "paper": {"steps": 100_000, "evaluate_every": 100},
}

SOLVED = 0.01
"""The loss below which a claim takes a task as learnt: ten times the goal of training, and a fiftieth of chance."""


def trial(setting: str, memory: dict[str, Any], column: str, preset: str, **exceptions: Any) -> Trial:
    """S symbols; Adam 1e-3, batches of 32, until the loss is 1e-3 or 11 evaluations brought nothing better."""
    values = {"batch_size": 32, "learning_rate": 1e-3, "patience": 11, "goal": 1e-3, **TRAINING[preset], **exceptions}
    task = {"symbols": int(column), "setting": setting}
    return Trial("retrieval", task, "retrieval-model", memory, Supervised(**values))


def columns(last: int) -> dict[str, str]:
    """S = 20, 40, ..., last."""
    return {str(symbols): f"S = {symbols}" for symbols in range(20, last + 1, 20)}


def published(
    learnt: Mapping[str, Iterable[int]], losses: Mapping[str, Mapping[int, float]]
) -> dict[tuple[str, str], Published]:
    """The paper's numbers by model: the S of which nothing is known but that 1e-3 was reached, and losses by S."""
    reached = {(m, str(s)): Published(0.001, at_most=True) for m, sizes in learnt.items() for s in sizes}
    return reached | {(m, str(s)): Published(loss) for m, found in losses.items() for s, loss in found.items()}
