"""Settings of `loops/language_modelling.py`."""

import math
from dataclasses import dataclass
from typing import Literal

from fastweights.core.errors import require
from fastweights.training.settings._training import Training, require_numbers, require_positive, warmed_up


@dataclass(frozen=True, kw_only=True)
class LanguageModelling(Training):
    """Settings of next-token prediction on a stream, with a warm-up and a cosine decay of the learning rate.

    Args:
        batch_size: Number of parallel streams that the text is split into.
        window: Number of tokens per stream and training step.
        carry_state: Carried state: each window starts from the final state of the previous window, without its
            gradient. Otherwise each window starts from the initial state, in evaluations as well.
        stride: Distance between windows in evaluations without a carried state, in tokens. Each token is scored once.
        optimizer: Optimiser: "adamw", or "muon" for Muon in the matrices of the blocks and AdamW in all other weights.
        learning_rate: Peak learning rate.
        betas: Betas of AdamW.
        warmup_steps: Number of training steps of the linear warm-up, which a cosine decay follows.
        min_lr_ratio: Final learning rate as a fraction of the peak.
        weight_decay: Decoupled weight decay of matrices, with Muon of the matrices that it trains.
        max_grad_norm: Maximum gradient norm.
        sample: Number of tokens to generate after training, with a carried state.
        state_every: Number of tokens between measurements of the norm of the carried state on test data; 0 for none.
        test_mem_lens: Additional memory lengths for the test of Transformer-XL, in time steps.
        compile: Compilation of blocks by torch.compile; null for compilation on GPUs only. It takes a minute, and can
            make training on a CPU slower.
        cuda_graph: Capture of the training step as a CUDA graph, which saves kernel launches. It needs one GPU and no
            gradient checkpointing. Its speed has not been measured.
    """

    window: int
    carry_state: bool = True
    stride: int = 1
    optimizer: Literal["adamw", "muon"] = "adamw"
    learning_rate: float
    betas: tuple[float, float] = (0.9, 0.95)
    warmup_steps: int = 0
    min_lr_ratio: float = 0.1
    weight_decay: float = 0.0
    max_grad_norm: float = 1.0
    sample: int = 0
    state_every: int = 0
    test_mem_lens: tuple[int, ...] = ()
    compile: bool | None = None
    cuda_graph: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        require_numbers(self, ("window", "stride"), 1)
        require(self.stride <= self.window, "stride", f"at most window={self.window}", self.stride)
        require(0 <= self.min_lr_ratio <= 1, "min_lr_ratio", "from 0 to 1", self.min_lr_ratio)
        require(
            all(steps >= 1 for steps in self.test_mem_lens),
            "test_mem_lens",
            "numbers of at least 1",
            self.test_mem_lens,
        )
        require(all(0 <= beta < 1 for beta in self.betas), "betas", "from 0 to below 1", self.betas)
        require_numbers(self, ("warmup_steps", "weight_decay", "sample", "state_every"), 0)
        remedy = "A model that starts from zeros in every window carries no state."
        require(
            self.carry_state or not self.state_every,
            "state_every",
            "0 without a carried state",
            self.state_every,
            remedy,
        )
        require_positive(self, ("learning_rate", "max_grad_norm"))
        needed = {"devices": 1, "fsdp": False, "gradient_checkpointing": False}
        others = [f"{name}={getattr(self, name)}" for name, value in needed.items() if getattr(self, name) != value]
        require(
            not (self.cuda_graph and others),
            "cuda_graph",
            f"false with {' and '.join(others)}",
            "true",
            "Use --no-cuda-graph.",
        )

    def learning_rate_at(self, step: int) -> float:
        """Linear warm-up, then a cosine decay to the floor."""
        rate = warmed_up(self.learning_rate, step, self.warmup_steps)
        progress = max(step - self.warmup_steps, 0) / max(self.steps - self.warmup_steps, 1)
        half = (1 - self.min_lr_ratio) / 2
        return rate * (1 - half + half * math.cos(math.pi * progress))
