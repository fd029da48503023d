"""Positions of a batch that hold tokens, and the starts of the sequences among them."""

from typing import NamedTuple

import torch
from torch import Tensor

from fastweights.adapters.transformers.packing import Packing
from fastweights.core.padding import valid_steps

IGNORED = -100
"""Label of a position without a loss, in PyTorch and in transformers."""


class TokenLayout(NamedTuple):
    """The L tokens that a model reads out of T positions.

    A layer writes every token that it reads into its state, so it must not see masked positions. `gather` moves the
    kept tokens of every row to the front, in their order. `spread` moves the results back.

    Attributes:
        mask: Positions that hold tokens, bool `[B, T]`. All positions if None.
        order: Positions of the kept tokens, then of others, int64 `[B, L]`. None if all are kept; then L = T.
        lengths: Number of kept tokens, int64 `[B]`. None if all are kept.
        reset: Tokens that start a sequence behind another sequence, bool `[B, L]`. None if there are none.
    """

    mask: Tensor | None
    order: Tensor | None
    lengths: Tensor | None
    reset: Tensor | None

    def gather(self, x: Tensor) -> Tensor:
        """x `[B, T, ...]` at the kept positions, `[B, L, ...]`."""
        return x if self.order is None else _at(self.order, x)

    def spread(self, h: Tensor) -> Tensor:
        """h `[B, L, ...]` at all positions, `[B, T, ...]`. Masked positions have the value of the token before them."""
        return h if self.mask is None else _at((self.mask.cumsum(1) - 1).clamp(min=0), h)

    def unmasked(self, labels: Tensor) -> Tensor:
        """Labels `[B, T]`, -100 at masked positions."""
        return labels if self.mask is None else labels.masked_fill(~self.mask, IGNORED)

    def predicted(self, labels: Tensor) -> Tensor:
        """Labels `[B, T]`, -100 at masked positions and at the first token of every sequence."""
        if self.order is None or self.lengths is None:
            return labels if self.reset is None else labels.masked_fill(self.reset, IGNORED)
        follows = valid_steps(self.lengths, self.order.shape[1])
        if self.reset is not None:
            follows &= ~self.reset
        follows[:, 0] = False
        return labels.masked_fill(~torch.zeros_like(labels, dtype=torch.bool).scatter(1, self.order, follows), IGNORED)


def lay_out(mask: Tensor | None, packing: Packing, B: int, T: int) -> TokenLayout:
    """The layout of B rows of T positions.

    Args:
        mask: Positions that hold tokens, bool `[B, T]`. All positions if None.
        packing: Marks of packed sequences.
        B: Number of rows.
        T: Number of positions.
    """
    layout = TokenLayout(None, None, None, None)
    if mask is not None and not mask.all():
        lengths = mask.sum(1)
        order = mask.int().argsort(dim=1, descending=True, stable=True)[:, : max(1, int(lengths.max()))]
        layout = TokenLayout(mask, order, lengths, None)
    return layout._replace(reset=packing.starts(layout.gather, B, T))


def _at(positions: Tensor, x: Tensor) -> Tensor:
    """`x[b, places[b, t]]` for every row b and place t."""
    return x[torch.arange(len(x), device=x.device).unsqueeze(1), positions]
