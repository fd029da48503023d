"""Dropout that costs a CPU little: PyTorch draws a random number for every unit, this one a quarter of it."""

import torch
from torch import Tensor, nn

from fastweights.core.arguments import Probability, checked
from fastweights.core.padding import can_be_read

LEVELS = 1 << 16
"""Different numbers of 16 bits."""


class Dropout(nn.Dropout):
    """y = m x / (1 - p), m = 0 with probability p and else 1; x itself where nothing is trained.

    On CPUs p is rounded to a multiple of 2^-16, and an integer of 64 random bits serves four units: where a model is
    small, to draw one for each takes as long as half of its matrix products. Elsewhere, in compiled programs and under
    the transforms of torch.func it is PyTorch's own.

    Source: Srivastava et al. 2014, "Dropout: a simple way to prevent neural networks from overfitting".

    Args:
        p: Probability of dropping a unit, from 0 to 1.
    """

    @checked
    def __init__(self, p: Probability = 0.5) -> None:
        super().__init__(p)

    def forward(self, x: Tensor) -> Tensor:
        if not self.training:
            return x
        dropped = min(round(self.p * LEVELS), LEVELS - 1)
        if not (dropped and self.p < 1 and can_be_read(x)):
            return super().forward(x)
        return x * _kept(x, dropped)


def _kept(x: Tensor, dropped: int) -> Tensor:
    """1 / (1 - p) where a unit stays and 0 where it is dropped, p = dropped / 2^16."""
    least = torch.iinfo(torch.int64).min  # together with None: any integer of 64 bits
    drawn = x.new_empty(-(-x.numel() // 4), dtype=torch.int64).random_(least, None).view(torch.int16)
    levels = drawn[: x.numel()].view(x.shape)
    kept = torch.empty_like(x, memory_format=torch.contiguous_format)
    torch.ge(levels, dropped - LEVELS // 2, out=kept)
    return kept.mul_(LEVELS / (LEVELS - dropped))
