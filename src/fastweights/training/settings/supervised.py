"""Settings of `loops/supervised.py`."""

from dataclasses import dataclass

from fastweights.core.errors import require
from fastweights.training.settings._training import Training, decayed, require_numbers, require_positive, warmed_up


@dataclass(frozen=True, kw_only=True)
class Supervised(Training):
    """Settings of supervised training, by Adam.

    Args:
        learning_rate: Learning rate of Adam.
        warmup_steps: Number of first training steps with a linear warm-up of the learning rate.
        decay: Number of final training steps with a linear decay of the learning rate to 0; 0 for a constant rate.
        betas: Betas of Adam.
        epsilon: Epsilon of Adam.
        max_grad_norm: Maximum gradient norm; 0 for no limit.
        goal: Validation loss at which training stops; 0 for none.
        test_curve: Measurement of test data at each evaluation, for a curve. It has no effect on training.
    """

    learning_rate: float
    warmup_steps: int = 0
    decay: int = 0
    betas: tuple[float, float] = (0.9, 0.999)
    epsilon: float = 1e-8
    max_grad_norm: float = 0.0
    goal: float = 0.0
    test_curve: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        require_numbers(self, ("max_grad_norm", "warmup_steps", "decay", "goal"), 0)
        require(self.decay <= self.steps, "decay", f"at most steps={self.steps}", self.decay)
        require_positive(self, ("learning_rate", "epsilon"))
        require(all(0 <= beta < 1 for beta in self.betas), "betas", "from 0 to below 1", self.betas)

    def learning_rate_at(self, step: int) -> float:
        """Linear warm-up, then constant, then a linear decay to 0."""
        rate = warmed_up(self.learning_rate, step, self.warmup_steps)
        return decayed(rate, step, self.steps, self.decay)
