"""Drawing the next token from logits."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor

from fastweights.core.arguments import Requirement, Size, check_fields
from fastweights.core.errors import require


@dataclass(frozen=True)
class Sampling:
    """p(token) ~ exp(logit / temperature), over the most probable tokens only.

    Args:
        temperature: 0 takes the most probable token, infinity all with the same probability.
        top_k: Only so many of the most probable tokens; all if None. Of equals, those of the lowest numbers.
        top_p: Only the fewest of the most probable tokens (of those that `top_k` left) that together have this
            probability.

    Source: `top_k`: Fan et al. 2018; `top_p`, nucleus sampling: Holtzman et al. 2020, Sec. 3.1.

    Raises:
        InputError: a number is out of its range.
    """

    temperature: Annotated[float, Requirement("a number of at least 0", lambda x: x >= 0)] = 1.0
    top_k: Size | None = None
    top_p: Annotated[float, Requirement("a number above 0 and at most 1", lambda p: 0 < p <= 1)] = 1.0

    def __post_init__(self) -> None:
        check_fields(self)

    def probabilities(self, logits: Tensor) -> Tensor:
        """Of every token, `[..., N]`, in float32 or float64; `InputError` for logits that are no numbers."""
        logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
        # Distances from the best are never positive: a temperature near 0 makes them -inf, and nothing overflows.
        behind = logits - logits.amax(-1, keepdim=True)
        require(not behind.isnan().any(), "logits", "numbers", "NaN or infinity", "Has the model diverged?")
        scaled = behind / self.temperature if self.temperature > 0 else torch.full_like(behind, -torch.inf)
        scaled = torch.where(behind == 0, 0.0, scaled).masked_fill(behind == -torch.inf, -torch.inf)
        p = scaled.softmax(-1)
        return p if self.temperature > 0 and self.top_k is None and self.top_p == 1 else self._cut(p)

    def draw(self, logits: Tensor, generators: Sequence[torch.Generator] | None) -> Tensor:
        """One token for each row of logits `[B, N]`, int `[B, 1]`, with a generator for each or none for all."""
        p = self.probabilities(logits)
        if generators is None:
            return torch.multinomial(p, 1)
        return torch.stack([torch.multinomial(row, 1, generator=own) for row, own in zip(p, generators, strict=True)])

    def _cut(self, p: Tensor) -> Tensor:
        """Probabilities of the tokens that stay; those of the others are 0."""
        kept, tokens = p.sort(dim=-1, descending=True, stable=True)
        most = 1 if self.temperature == 0 else self.top_k or p.shape[-1]
        kept[..., most:] = 0
        if self.top_p < 1:
            kept = kept / kept.sum(-1, keepdim=True)
            kept = kept.masked_fill(kept.cumsum(-1) - kept >= self.top_p, 0)
        return torch.zeros_like(p).scatter(-1, tokens, kept / kept.sum(-1, keepdim=True))
