"""Caches of the last steps in the state of a layer, and the masks of the steps that are visible from a step.

A reset begins a new segment. Every cached and new step has the number of its segment, and sees only its own segment.
A call without a state starts from an empty cache.
"""

from typing import Any

import torch
from torch import Tensor

from fastweights.core.padding import mask_steps


def empty_cache(past: Any) -> Any:
    """The record of cached tensors `[B, cached, ...]` with no steps in it."""
    return type(past)(*(tensor[:, :0] for tensor in past))


def last(past: Tensor, size: int, ends: Tensor | None = None) -> Tensor:
    """The last `size` steps of `[B, L, ...]`, padded with zeros in front if L is less.

    With `ends`, int `[B]`, the last steps before the end of each member.
    """
    if ends is None and not torch.compiler.is_exporting() and past.shape[1] >= size:
        return past[:, -size:]  # a stream with a full cache copies nothing
    padded = torch.cat([past.new_zeros(past.shape[0], size, *past.shape[2:]), past], dim=1)
    if ends is None:
        return padded[:, past.shape[1] :]
    positions = ends.unsqueeze(1) + torch.arange(size, device=past.device)
    return padded[torch.arange(past.shape[0], device=past.device).unsqueeze(1), positions]


def number_segments(filled: Tensor, reset: Tensor | None, steps: int) -> Tensor:
    """Segment of every cached and new step, `[B, cached + T]`; -1 for a position that was never filled.

    Args:
        filled: Whether a cached position belongs to the current segment, bool `[B, cached]`.
        reset: Whether a segment begins before a new step, bool `[B, T]`.
        steps: T.
    """
    cached = torch.where(filled, 0, -1)
    new = cached.new_zeros(filled.shape[0], steps) if reset is None else reset.long().cumsum(dim=1)
    return torch.cat([cached, new], dim=1)


def visible(segments: Tensor, steps: int, window_size: int) -> Tensor:
    """Attention mask, bool `[B, T, cached + T]`: the last `window` steps of the same segment, with the step itself."""
    time = torch.arange(segments.shape[1], device=segments.device)
    back = time[-steps:, None] - time
    near = (back >= 0) & (back < window_size)
    return near & (segments[:, -steps:, None] == segments[:, None, :])


def still_valid(segments: Tensor, size: int, ends: Tensor | None = None) -> Tensor:
    """Marks which of the last `size` steps are in the segment of the last one, bool `[B, size]`. `ends`: see `last`."""
    return last(segments == segments[:, -1:], size, ends)


class PaddedWindow:
    """The cached inputs and the new ones in one row; steps before the start or before a reset read as 0.

    It serves causal convolutions, whose padding is zero.
    """

    def __init__(self, tail: Tensor, x: Tensor, reset: Tensor | None, lengths: Tensor | None) -> None:
        self.row = torch.cat([tail, x], dim=1)
        self.carried, self.steps = tail.shape[1], x.shape[1]
        self.ends = None if lengths is None else self.carried + lengths
        filled = torch.ones(tail.shape[:2], dtype=torch.bool, device=x.device)
        self.segments = None if reset is None else number_segments(filled, reset, self.steps)

    def earlier(self, back: int) -> Tensor:
        """The input `back` steps before each new one, `[B, T, C]`; `back` is at most the size of the cache."""
        end = self.carried + self.steps - back
        inputs = self.row[:, end - self.steps : end]
        if self.segments is None:
            return inputs
        return mask_steps(self.segments[:, end - self.steps : end] == self.segments[:, -self.steps :], inputs)

    def tail(self) -> Tensor:
        """The tail for the next call, of the size of the old one."""
        row = last(self.row, self.carried, self.ends)
        if self.segments is None:
            return row
        return mask_steps(still_valid(self.segments, self.carried, self.ends), row)
