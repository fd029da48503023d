"""Settings of `loops/translation.py`."""

from dataclasses import dataclass

from fastweights.core.errors import require
from fastweights.training.settings._training import Training, require_numbers, require_positive


@dataclass(frozen=True, kw_only=True)
class Translation(Training):
    """How a translator learns, by Adam with a warm-up and then the inverse square root of the number of updates.

    Args:
        batch_size: Largest number of tokens of an update, padding included, in whichever language has more.
        learning_rate: Peak of Adam's learning rate, after the warm-up.
        warmup: Updates until the peak.
        betas: Adam's.
        smoothing: Part of the probability that every token shares, where the right one has the rest.
        clip: Largest norm of the gradient; 0 for no limit.
        beam: Hypotheses that are kept for the report. While training goes on, the best token is taken at every step.
        penalty: Power of the length that log-probabilities are divided by.
    """

    learning_rate: float
    warmup: int = 4000
    betas: tuple[float, float] = (0.9, 0.98)
    smoothing: float = 0.1
    clip: float = 0.0
    beam: int = 5
    penalty: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        remedy = "Its search reads blocks in parts, which must be there as a whole."
        require(not self.sharded, "sharded", "false for translators", "true", remedy)
        require_numbers(self, ("warmup", "beam"), 1)
        require_numbers(self, ("clip", "penalty"), 0)
        require_positive(self, ("learning_rate",))
        require(0 <= self.smoothing < 1, "smoothing", "from 0 to below 1", self.smoothing)
        require(all(0 <= beta < 1 for beta in self.betas), "betas", "from 0 to below 1", self.betas)

    def learning_rate_at(self, step: int) -> float:
        """Linear warm-up, then as one over the square root of the number of updates."""
        done = (step + 1) / self.warmup
        return self.learning_rate * min(done, done**-0.5)
