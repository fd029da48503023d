"""Settings of `loops/translation.py`."""

from dataclasses import dataclass

from fastweights.core.errors import require
from fastweights.training.settings._training import Training, require_numbers, require_positive


@dataclass(frozen=True, kw_only=True)
class Translation(Training):
    """Settings of a translator, trained by Adam with a warm-up and an inverse square root decay.

    Args:
        batch_size: Maximum number of tokens per training step, padding included, in the language with more tokens.
        learning_rate: Peak learning rate of Adam.
        warmup_steps: Number of training steps of the linear warm-up, which an inverse square root decay follows.
        betas: Betas of Adam.
        label_smoothing: Label smoothing: probability mass that is spread over all tokens.
        max_grad_norm: Maximum gradient norm; 0 for no limit.
        num_beams: Number of beams of beam search in the final evaluation. Evaluations during training are greedy.
        length_penalty: Exponent of the length that divides log-probabilities in beam search. Larger values favour long
            translations.
    """

    learning_rate: float
    warmup_steps: int = 4000
    betas: tuple[float, float] = (0.9, 0.98)
    label_smoothing: float = 0.1
    max_grad_norm: float = 0.0
    num_beams: int = 5
    length_penalty: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        remedy = "Beam search calls parts of blocks, which FSDP cannot gather."
        require(not self.fsdp, "fsdp", "false for translators", "true", remedy)
        require_numbers(self, ("warmup_steps", "num_beams"), 1)
        require_numbers(self, ("max_grad_norm", "length_penalty"), 0)
        require_positive(self, ("learning_rate",))
        require(0 <= self.label_smoothing < 1, "label_smoothing", "from 0 to below 1", self.label_smoothing)
        require(all(0 <= beta < 1 for beta in self.betas), "betas", "from 0 to below 1", self.betas)

    def learning_rate_at(self, step: int) -> float:
        """Linear warm-up, then inverse to the square root of the number of training steps."""
        done = (step + 1) / self.warmup_steps
        return self.learning_rate * min(done, done**-0.5)
