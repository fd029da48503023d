"""Where a run stands, and the seconds that it took."""

import time
from dataclasses import dataclass

SECONDS_BETWEEN_NEWS = 1.0


@dataclass
class Place:
    """How far a run has come: with the tensors of a checkpoint, all that it needs to go on."""

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
        """Another step is done."""
        self.step += 1
        self.loss_sum += loss
        self.loss_count += 1

    @property
    def mean_loss(self) -> float:
        """Of the steps since the last evaluation."""
        return self.loss_sum / self.loss_count

    def judge(self, score: tuple[float, float], keep: bool = False) -> bool:
        """Whether the weights of an evaluation are kept: the best so far, or those that the caller wants to `keep`.

        Args:
            score: Smaller is better.
            keep: Whether they are kept even if earlier ones were better.
        """
        better = self.best is None or score < tuple(self.best)
        self.since_best = 0 if better else self.since_best + 1
        if better:
            self.best = score
        if better or keep:
            self.kept_step = self.step
        return better or keep


class Clock:
    """Seconds of training, those before an interruption included.

    Args:
        evaluated: Seconds until the last evaluation.
        place: Where the run goes on.
    """

    def __init__(self, evaluated: float, place: Place) -> None:
        self.evaluated = evaluated
        self.before = evaluated + place.seconds
        self.first = place.step
        self.start = time.perf_counter()
        self.next_news = 0.0

    def seconds(self) -> float:
        return self.before + time.perf_counter() - self.start

    def evaluate(self) -> float:
        """The seconds of an evaluation that happens now."""
        self.evaluated = self.seconds()
        return self.evaluated

    def since_evaluation(self) -> float:
        return self.seconds() - self.evaluated

    def news_is_due(self) -> bool:
        """True once a second."""
        due = self.seconds() >= self.next_news
        if due:
            self.next_news = self.seconds() + SECONDS_BETWEEN_NEWS
        return due

    def rate(self, step: int) -> float:
        """Updates a second since training began or went on, evaluations included."""
        return (step - self.first) / (time.perf_counter() - self.start)
