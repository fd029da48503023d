"""Dropout that is fast on CPUs: it draws a quarter of the random numbers of PyTorch's."""

import torch
from torch import Tensor, nn

from fastweights.core.arguments import Probability, checked
from fastweights.core.padding import can_be_read

LEVELS = 1 << 16
"""Number of 16-bit integers."""


class Dropout(nn.Dropout):
    """Dropout that is faster than PyTorch's on CPUs.

        y = m * x / (1 - p)

    m is 0 with probability p and 1 otherwise. In evaluation mode y = x. On CPUs p is rounded to a multiple of 2^-16,
    and 64 random bits serve four units. On other devices, in compiled programs and under the transforms of torch.func
    it is PyTorch's dropout.

    Source: Srivastava et al. 2014 (Dropout: a simple way to prevent neural networks from overfitting).

    Args:
        p: Probability of dropping a unit, from 0 to 1.

    Example:
        >>> Dropout(0.5).eval()(torch.ones(3))
        tensor([1., 1., 1.])
    """

    @checked
    def __init__(self, p: Probability = 0.5) -> None:
        super().__init__(p)

    def forward(self, x: Tensor) -> Tensor:
        """Drops units in training mode.

        Args:
            x: Input of any shape.

        Returns:
            The output, of the same shape.
        """
        if not self.training:
            return x
        dropped = min(round(self.p * LEVELS), LEVELS - 1)
        if not (dropped and self.p < 1 and can_be_read(x)):
            return super().forward(x)
        return x * _mask(x, dropped)


def _mask(x: Tensor, dropped: int) -> Tensor:
    """The factors 1 / (1 - p) of retained units and 0 of dropped units, with p = dropped / 2^16."""
    least = torch.iinfo(torch.int64).min  # with None as the upper bound: any integer of 64 bits
    drawn = x.new_empty(-(-x.numel() // 4), dtype=torch.int64).random_(least, None).view(torch.int16)
    levels = drawn[: x.numel()].view(x.shape)
    mask = torch.empty_like(x, memory_format=torch.contiguous_format)
    torch.ge(levels, dropped - LEVELS // 2, out=mask)
    return mask.mul_(LEVELS / (LEVELS - dropped))
