"""Sampling of the next token from logits."""

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
        temperature: 0 selects the most probable token, infinity all tokens with the same probability.
        top_k: Number of most probable tokens to sample from; all if None. Ties are resolved by the lowest index.
        top_p: Sample from the fewest most probable tokens (among those of `top_k`) that together have this
            probability.

    Source: `top_k`: Fan et al. 2018; `top_p`, nucleus sampling: Holtzman et al. 2020, Sec. 3.1.

    Raises:
        InputError: a setting is out of its range.
    """

    temperature: Annotated[float, Requirement("a number of at least 0", lambda x: x >= 0)] = 1.0
    top_k: Size | None = None
    top_p: Annotated[float, Requirement("a number above 0 and at most 1", lambda p: 0 < p <= 1)] = 1.0

    def __post_init__(self) -> None:
        check_fields(self)

    def probabilities(self, logits: Tensor) -> Tensor:
        """Probability of every token, `[..., N]`, in float32 or float64; `InputError` for NaN or infinite logits."""
        logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
        # Differences to the maximum are never positive, so a temperature near 0 gives -inf rather than an overflow.
        behind = logits - logits.amax(-1, keepdim=True)
        require(not behind.isnan().any(), "logits", "finite", "NaN or infinity", "Has the model diverged?")
        scaled = behind / self.temperature if self.temperature > 0 else torch.full_like(behind, -torch.inf)
        scaled = torch.where(behind == 0, 0.0, scaled).masked_fill(behind == -torch.inf, -torch.inf)
        p = scaled.softmax(-1)
        return p if self.temperature > 0 and self.top_k is None and self.top_p == 1 else self._cut(p)

    def draw(self, logits: Tensor, generators: Sequence[torch.Generator] | None) -> Tensor:
        """Draws one token per row of logits `[B, N]`, int `[B, 1]`, with one generator per row or the global one."""
        p = self.probabilities(logits)
        if generators is None:
            return torch.multinomial(p, 1)
        return torch.stack(
            [torch.multinomial(row, 1, generator=generator) for row, generator in zip(p, generators, strict=True)]
        )

    def _cut(self, p: Tensor) -> Tensor:
        """Probabilities after `top_k` and `top_p`; those of all other tokens are 0."""
        sorted_p, tokens = p.sort(dim=-1, descending=True, stable=True)
        most = 1 if self.temperature == 0 else self.top_k or p.shape[-1]
        sorted_p[..., most:] = 0
        if self.top_p < 1:
            sorted_p = sorted_p / sorted_p.sum(-1, keepdim=True)
            sorted_p = sorted_p.masked_fill(sorted_p.cumsum(-1) - sorted_p >= self.top_p, 0)
        return torch.zeros_like(p).scatter(-1, tokens, sorted_p / sorted_p.sum(-1, keepdim=True))
