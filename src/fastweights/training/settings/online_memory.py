"""Settings of `loops/online_memory.py`."""

from dataclasses import dataclass
from typing import Literal

from fastweights.core.errors import require
from fastweights.training.settings._training import Training, decayed, require_numbers, require_positive


@dataclass(frozen=True, kw_only=True)
class OnlineMemory(Training):
    """Settings of online training of a memory on one long text, by Adam.

    A training step reads a segment of T symbols, then a snippet of T earlier symbols, with the current memory but
    without context. The loss is that of predicting the snippet.

    Args:
        batch_size: Number of parallel streams, which start at different positions of the text.
        segment: T, number of symbols per segment and per snippet.
        delay: P, maximum distance of a snippet in symbols.
        bounds: Range of the start of a snippet, where t is the last symbol read: "behind" for t - T - P to t - T,
            "printed" for t - P to t - T, which is empty if P is T.
        reset_fields: Fields of the state that are reset to 0 before a snippet. All other fields are carried over.
        online_loss_weight: Weight of the loss of predicting the segment itself.
        keep_replay: Changes of the memory by the snippet: kept, or discarded.
        early_symbols: Number of symbols from the start whose mean loss is reported as "early".
        learning_rate: Learning rate of Adam.
        decay: Number of final training steps with a linear decay of the learning rate to 0; 0 for a constant rate.
        betas: Betas of Adam.
        max_grad_norm: Maximum gradient norm.
    """

    batch_size: int = 1
    segment: int = 10
    delay: int = 10
    bounds: Literal["behind", "printed"] = "behind"
    reset_fields: tuple[str, ...] = ("h", "p", "y", "tail")
    online_loss_weight: float = 0.0
    keep_replay: bool = False
    early_symbols: int = 200_000
    learning_rate: float
    decay: int = 0
    betas: tuple[float, float] = (0.9, 0.999)
    max_grad_norm: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        require(
            self.gradient_accumulation_steps == 1,
            "gradient_accumulation_steps",
            "1 for online training",
            self.gradient_accumulation_steps,
            "Use fewer parallel streams.",
        )
        require_numbers(self, ("segment", "delay", "early_symbols"), 1)
        require_numbers(self, ("online_loss_weight", "decay"), 0)
        require(self.decay <= self.steps, "decay", f"at most steps={self.steps}", self.decay)
        require_positive(self, ("learning_rate", "max_grad_norm"))
        require(all(0 <= beta < 1 for beta in self.betas), "betas", "from 0 to below 1", self.betas)
        fits = self.bounds == "behind" or self.delay > self.segment
        remedy = "With bounds 'behind' it counts from the start of the segment."
        require(fits, "delay", f"above segment={self.segment} with bounds 'printed'", self.delay, remedy)
        object.__setattr__(self, "reset_fields", tuple(self.reset_fields))

    def learning_rate_at(self, step: int) -> float:
        """Constant, then a linear decay to 0."""
        return decayed(self.learning_rate, step, self.steps, self.decay)

    @property
    def max_distance(self) -> int:
        """Distance of the start of the earliest snippet from the last symbol."""
        return self.delay + (self.segment if self.bounds == "behind" else 0)
