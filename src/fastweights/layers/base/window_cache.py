"""Bounded pasts: the last steps that a layer carries in its state, and which of them a step may still see.

A reset begins a new segment. Every carried and new step has the number of its segment, and sees those of its own.
A call without a state carries nothing: it need not look at places that were never filled.
"""

from typing import Any

import torch
from torch import Tensor

from fastweights.core.padding import only


def nothing(past: Any) -> Any:
    """A record of carried tensors `[B, carried, ...]` with no place in it."""
    return type(past)(*(tensor[:, :0] for tensor in past))


def last(past: Tensor, size: int, ends: Tensor | None = None) -> Tensor:
    """The last `size` places of `[B, L, ...]`; zeros stand in front of them where L is less.

    With `ends`, int `[B]`, those before the place where a member ends.
    """
    if ends is None and not torch.compiler.is_exporting() and past.shape[1] >= size:
        return past[:, -size:]  # streams come with a full past: they copy nothing
    kept = torch.cat([past.new_zeros(past.shape[0], size, *past.shape[2:]), past], dim=1)
    if ends is None:
        return kept[:, past.shape[1] :]
    places = ends.unsqueeze(1) + torch.arange(size, device=past.device)
    return kept[torch.arange(past.shape[0], device=past.device).unsqueeze(1), places]


def number_segments(filled: Tensor, reset: Tensor | None, steps: int) -> Tensor:
    """Segment of every carried and new step, `[B, carried + T]`; -1 for a place that was never filled.

    Args:
        filled: Whether a carried place belongs to the running segment, bool `[B, carried]`.
        reset: Whether a segment begins before a new step, bool `[B, T]`.
        steps: T.
    """
    carried = torch.where(filled, 0, -1)
    new = carried.new_zeros(filled.shape[0], steps) if reset is None else reset.long().cumsum(dim=1)
    return torch.cat([carried, new], dim=1)


def visible(segments: Tensor, steps: int, window: int) -> Tensor:
    """Who may see whom, bool `[B, T, carried + T]`: the last `window` steps of the same segment, oneself included."""
    time = torch.arange(segments.shape[1], device=segments.device)
    back = time[-steps:, None] - time
    near = (back >= 0) & (back < window)
    return near & (segments[:, -steps:, None] == segments[:, None, :])


def still_valid(segments: Tensor, size: int, ends: Tensor | None = None) -> Tensor:
    """Which of the last `size` steps the next one belongs with, bool `[B, size]`; before `ends` as in `last`."""
    return last(segments == segments[:, -1:], size, ends)


class Padded:
    """The last inputs and the new ones in one row; what lies before the beginning or before a reset reads as 0.

    For convolutions, where a place without an input needs no mark of its own: zero is their padding.
    """

    def __init__(self, tail: Tensor, x: Tensor, reset: Tensor | None, lengths: Tensor | None) -> None:
        self.row = torch.cat([tail, x], dim=1)
        self.carried, self.steps = tail.shape[1], x.shape[1]
        self.ends = None if lengths is None else self.carried + lengths
        everything = torch.ones(tail.shape[:2], dtype=torch.bool, device=x.device)
        self.segments = None if reset is None else number_segments(everything, reset, self.steps)

    def earlier(self, back: int) -> Tensor:
        """The input `back` steps before each new one, `[B, T, C]`; `back` is at most the number carried."""
        end = self.carried + self.steps - back
        seen = self.row[:, end - self.steps : end]
        if self.segments is None:
            return seen
        return only(self.segments[:, end - self.steps : end] == self.segments[:, -self.steps :], seen)

    def tail(self) -> Tensor:
        """What the next call is to carry, of the size of the old tail."""
        kept = last(self.row, self.carried, self.ends)
        if self.segments is None:
            return kept
        return only(still_valid(self.segments, self.carried, self.ends), kept)
