"""The progress of a run, and its time of training."""

import time
from dataclasses import dataclass

PROGRESS_INTERVAL = 1.0
"""Seconds between two updates of the displayed progress."""


@dataclass
class Progress:
    """The progress of a run. A checkpoint has it next to its tensors."""

    step: int = 0
    evaluations: int = 0
    seconds: float = 0.0  # since the last evaluation
    kept_step: int = 0
    best: tuple[float, float] | list[float] | None = None
    since_best: int = 0
    loss_sum: float = 0.0
    loss_count: int = 0
    stopped: str = ""

    def count(self, loss: float) -> None:
        """Counts a training step."""
        self.step += 1
        self.loss_sum += loss
        self.loss_count += 1

    @property
    def mean_loss(self) -> float:
        """Mean loss of the training steps since the last evaluation."""
        return self.loss_sum / self.loss_count

    def record_evaluation(self, score: tuple[float, float], keep: bool = False) -> bool:
        """Counts an evaluation, and returns whether its weights are to be saved.

        Args:
            score: Score of the weights; smaller is better.
            keep: Whether to save them even if earlier ones were better.
        """
        better = self.best is None or score < tuple(self.best)
        self.since_best = 0 if better else self.since_best + 1
        if better:
            self.best = score
        if better or keep:
            self.kept_step = self.step
        return better or keep


class Clock:
    """Seconds of training, including those before an interruption.

    Args:
        evaluated: Seconds until the last evaluation.
        progress: Progress at the start or at the resumption of training.
    """

    def __init__(self, evaluated: float, progress: Progress) -> None:
        self.evaluated = evaluated
        self.before = evaluated + progress.seconds
        self.first = progress.step
        self.start = time.perf_counter()
        self.next_update = 0.0

    def seconds(self) -> float:
        return self.before + time.perf_counter() - self.start

    def evaluate(self) -> float:
        """Notes an evaluation at this moment, and returns its seconds."""
        self.evaluated = self.seconds()
        return self.evaluated

    def since_evaluation(self) -> float:
        return self.seconds() - self.evaluated

    def update_is_due(self) -> bool:
        """Whether to update the displayed progress: true once per `PROGRESS_INTERVAL`."""
        due = self.seconds() >= self.next_update
        if due:
            self.next_update = self.seconds() + PROGRESS_INTERVAL
        return due

    def rate(self, step: int) -> float:
        """Training steps per second since the start or the resumption, including the time of evaluations."""
        return (step - self.first) / (time.perf_counter() - self.start)
