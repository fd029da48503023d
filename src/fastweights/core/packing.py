"""Packed sequences: concatenated in one member of a batch, as flash-linear-attention packs them.

`cu_seqlens`, int `[N + 1]`, has the starts of the N sequences and the end of the last one: 0, then growing, up to T.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from fastweights.core.errors import require
from fastweights.core.padding import INTEGERS, can_be_read, valid_steps

MOST_PADDING = 4
"""Sequences are read together if padding makes them at most this many times longer in all."""


def check_packed(cu_seqlens: Tensor, like: Tensor) -> None:
    """Raises unless `cu_seqlens` has valid starts of sequences in `like`, `[1, T, ...]`."""
    B, T = like.shape[:2]
    require(
        isinstance(cu_seqlens, Tensor), "cu_seqlens", "a tensor", type(cu_seqlens).__name__, "Try torch.tensor(...)."
    )
    require(cu_seqlens.dtype in INTEGERS, "cu_seqlens", "int64 or int32", cu_seqlens.dtype)
    require(cu_seqlens.ndim == 1 and len(cu_seqlens) > 1, "cu_seqlens", "[N + 1]", list(cu_seqlens.shape))
    require(
        B == 1, "cu_seqlens", "None for a batch of several members", f"B={B}", "Lay the sequences one behind the other."
    )
    if can_be_read(cu_seqlens):
        first, *_, last = cu_seqlens.tolist()
        grows = bool((cu_seqlens.diff() >= 0).all())
        require(first == 0 and last == T and grows, "cu_seqlens", f"ascending from 0 to T={T}", cu_seqlens.tolist())


def starts(cu_seqlens: Tensor, T: int) -> Tensor:
    """Marks the first step of each sequence, bool `[1, T]`: the `reset` of a scan."""
    return (torch.arange(T, device=cu_seqlens.device)[:, None] == cu_seqlens[:-1]).any(-1)[None]


def lengths_of(cu_seqlens: Tensor) -> Tensor:
    """Number of steps per sequence, int `[N]`: the `lengths` of a scan."""
    return cu_seqlens.diff()


def group_by_length(cu_seqlens: Tensor) -> list[Tensor]:
    """Groups the indices of sequences by similar length, unless padding all of them to the longest costs little."""
    lengths = lengths_of(cu_seqlens)
    if len(lengths) * int(lengths.max()) <= MOST_PADDING * int(lengths.sum()):
        return [torch.arange(len(lengths), device=lengths.device)]
    doublings = lengths.clamp(min=1).double().log2().ceil()
    return [(doublings == n).nonzero()[:, 0] for n in doublings.unique()]


class SequenceGroup(NamedTuple):
    """Sequences as members of a batch: indices and lengths `[N]`, and positions of their steps, `[N, longest]`."""

    chosen: Tensor
    lengths: Tensor
    positions: Tensor

    @staticmethod
    def of(cu_seqlens: Tensor, chosen: Tensor) -> "SequenceGroup":
        """The group of the sequences with the indices `chosen`."""
        lengths = lengths_of(cu_seqlens)[chosen]
        steps = torch.arange(max(int(lengths.max()), 1), device=cu_seqlens.device)
        return SequenceGroup(chosen, lengths, cu_seqlens[:-1][chosen, None] + steps)

    def unpack(self, x: Tensor) -> Tensor:
        """`[1, T, ...]` -> `[N, longest, ...]`, padded at the ends."""
        positions = self.positions.clamp(max=x.shape[1] - 1)
        return x[0].index_select(0, positions.flatten()).unflatten(0, positions.shape)

    @property
    def valid(self) -> Tensor:
        """Marks the steps that are no padding, bool `[N, longest]`."""
        return valid_steps(self.lengths, self.positions.shape[1])


def pack(groups: Sequence[SequenceGroup], parts: Sequence[Tensor]) -> Tensor:
    """Packs the results of all groups, `[N, longest, ...]` each -> `[1, T, ...]`."""
    steps = torch.cat([x[group.valid] for group, x in zip(groups, parts, strict=True)])
    positions = torch.cat([group.positions[group.valid] for group in groups])
    return steps.index_select(0, positions.argsort())[None]


def in_order(groups: Sequence[SequenceGroup], parts: Sequence[Tensor]) -> Tensor:
    """Sorts the results of all groups, `[N, ...]` each, into the order of the sequences."""
    return torch.cat(list(parts)).index_select(0, torch.cat([group.chosen for group in groups]).argsort())
