"""Settings of `loops/translation.py`."""

from dataclasses import dataclass

from fastweights.core.errors import require
from fastweights.training.settings._training import Training, require_numbers, require_positive


@dataclass(frozen=True, kw_only=True)
class Translation(Training):
    """Settings of a translator, trained by Adam with a warm-up and an inverse square root decay.

    Args:
        batch_size: Maximum number of tokens per training step, with padding, in the language with more.
        learning_rate: Peak learning rate of Adam, after the warm-up.
        warmup: Number of training steps until the peak.
        betas: Betas of Adam.
        smoothing: Label smoothing.
        clip: Maximum gradient norm; 0 for no limit.
        beam: Number of hypotheses of beam search in the final evaluation. Evaluations during training are greedy.
        penalty: Length penalty: exponent of the length that divides log-probabilities.
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
        remedy = "Beam search calls parts of blocks, which FSDP cannot gather."
        require(not self.sharded, "sharded", "false for translators", "true", remedy)
        require_numbers(self, ("warmup", "beam"), 1)
        require_numbers(self, ("clip", "penalty"), 0)
        require_positive(self, ("learning_rate",))
        require(0 <= self.smoothing < 1, "smoothing", "from 0 to below 1", self.smoothing)
        require(all(0 <= beta < 1 for beta in self.betas), "betas", "from 0 to below 1", self.betas)

    def learning_rate_at(self, step: int) -> float:
        """Linear warm-up, then inverse to the square root of the number of training steps."""
        done = (step + 1) / self.warmup
        return self.learning_rate * min(done, done**-0.5)
