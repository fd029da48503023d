"""Settings of `loops/remembering.py`."""

from dataclasses import dataclass
from typing import Literal

from fastweights.core.errors import require
from fastweights.training.settings._training import Training, decayed, require_numbers, require_positive


@dataclass(frozen=True, kw_only=True)
class Remembering(Training):
    """Learning to remember while reading without end, by Adam.

    An update reads a segment of T symbols on, then a snippet of as many that it has read before, with what it now
    remembers but in no context: the loss is that of predicting the snippet.

    Args:
        batch_size: Lives that are lived side by side, which begin at places of their own in the text.
        segment: T, symbols from one update to the next, and of a snippet.
        delay: P, how far back snippets are drawn from.
        bounds: Where a snippet may begin, t being the last symbol read: "behind" for t - T - P to t - T, "printed" for
            t - P to t - T, which leaves nothing where P is T.
        bodies: Fields of a state that a snippet begins with at 0. All others hold what they hold: what is remembered.
        online: Weight of the loss of predicting the segment itself.
        keep_replay: Whether what the snippet changed in the memory stays, in place of being forgotten with it.
        early: Symbols from the beginning of the life whose mean loss is told as "early".
        learning_rate: Adam's.
        decay: Last training steps, over which the learning rate falls to 0; 0 for a constant rate.
        betas: Adam's.
        clip: Largest norm of the gradient.
    """

    batch_size: int = 1
    segment: int = 10
    delay: int = 10
    bounds: Literal["behind", "printed"] = "behind"
    bodies: tuple[str, ...] = ("h", "p", "y", "tail")
    online: float = 0.0
    keep_replay: bool = False
    early: int = 200_000
    learning_rate: float
    decay: int = 0
    betas: tuple[float, float] = (0.9, 0.999)
    clip: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.accumulate == 1, "accumulate", "1 for a life", self.accumulate, "Take fewer lives side by side.")
        require_numbers(self, ("segment", "delay", "early"), 1)
        require_numbers(self, ("online", "decay"), 0)
        require(self.decay <= self.steps, "decay", f"at most steps={self.steps}", self.decay)
        require_positive(self, ("learning_rate", "clip"))
        require(all(0 <= beta < 1 for beta in self.betas), "betas", "from 0 to below 1", self.betas)
        fits = self.bounds == "behind" or self.delay > self.segment
        remedy = "With bounds 'behind' it counts from the segment."
        require(fits, "delay", f"above segment={self.segment} with bounds 'printed'", self.delay, remedy)
        object.__setattr__(self, "bodies", tuple(self.bodies))

    def learning_rate_at(self, step: int) -> float:
        """Constant, then a line down to 0."""
        return decayed(self.learning_rate, step, self.steps, self.decay)

    @property
    def reach(self) -> int:
        """How far before the last symbol the earliest snippet begins."""
        return self.delay + (self.segment if self.bounds == "behind" else 0)
