"""Sequences laid one behind the other in one member of a batch, as flash-linear-attention packs them.

`cu_seqlens`, int `[N + 1]`, says where the N sequences begin and the last one ends: 0, then growing, up to T.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from fastweights.core.errors import require
from fastweights.core.padding import INTEGERS, can_be_read, within

MOST_PADDING = 4
"""How often what is read may be padded to, at most, for all sequences to be read together."""


def check_packed(cu_seqlens: Tensor, like: Tensor) -> None:
    """Raises unless `cu_seqlens` tells where sequences begin in `like`, `[1, T, ...]`."""
    B, T = like.shape[:2]
    require(
        isinstance(cu_seqlens, Tensor), "cu_seqlens", "a tensor", type(cu_seqlens).__name__, "Try torch.tensor(...)."
    )
    require(cu_seqlens.dtype in INTEGERS, "cu_seqlens", "int64 or int32", cu_seqlens.dtype)
    require(cu_seqlens.ndim == 1 and len(cu_seqlens) > 1, "cu_seqlens", "[N + 1]", list(cu_seqlens.shape))
    require(B == 1, "cu_seqlens", "given for a batch of one", f"B={B}", "Lay the sequences one behind the other.")
    if can_be_read(cu_seqlens):
        first, *_, last = cu_seqlens.tolist()
        grows = bool((cu_seqlens.diff() >= 0).all())
        require(first == 0 and last == T and grows, "cu_seqlens", f"growing from 0 to T={T}", cu_seqlens.tolist())


def starts(cu_seqlens: Tensor, T: int) -> Tensor:
    """Where a sequence begins, bool `[1, T]`: the `reset` of a scan."""
    return (torch.arange(T, device=cu_seqlens.device)[:, None] == cu_seqlens[:-1]).any(-1)[None]


def lengths_of(cu_seqlens: Tensor) -> Tensor:
    """How many steps each sequence has, int `[N]`: the `lengths` of a scan."""
    return cu_seqlens.diff()


def alike(cu_seqlens: Tensor) -> list[Tensor]:
    """The numbers of all sequences, those of like lengths together where padding all to the longest would be most of
    what is read."""
    lengths = lengths_of(cu_seqlens)
    if len(lengths) * int(lengths.max()) <= MOST_PADDING * int(lengths.sum()):
        return [torch.arange(len(lengths), device=lengths.device)]
    doublings = lengths.clamp(min=1).double().log2().ceil()
    return [(doublings == n).nonzero()[:, 0] for n in doublings.unique()]


class Group(NamedTuple):
    """Some sequences, each a member of a batch: their lengths, and where their steps are, `[N, longest]`."""

    chosen: Tensor
    lengths: Tensor
    places: Tensor

    @staticmethod
    def of(cu_seqlens: Tensor, chosen: Tensor) -> "Group":
        """Those of these numbers."""
        lengths = lengths_of(cu_seqlens)[chosen]
        steps = torch.arange(max(int(lengths.max()), 1), device=cu_seqlens.device)
        return Group(chosen, lengths, cu_seqlens[:-1][chosen, None] + steps)

    def unpack(self, x: Tensor) -> Tensor:
        """`[1, T, ...]` -> `[N, longest, ...]`, padded at the ends."""
        places = self.places.clamp(max=x.shape[1] - 1)
        return x[0].index_select(0, places.flatten()).unflatten(0, places.shape)

    @property
    def inside(self) -> Tensor:
        """Which of the steps are no padding, bool `[N, longest]`."""
        return within(self.lengths, self.places.shape[1])


def pack(groups: Sequence[Group], found: Sequence[Tensor]) -> Tensor:
    """What was found of all groups, `[N, longest, ...]` each -> `[1, T, ...]`."""
    steps = torch.cat([x[group.inside] for group, x in zip(groups, found, strict=True)])
    places = torch.cat([group.places[group.inside] for group in groups])
    return steps.index_select(0, places.argsort())[None]


def in_order(groups: Sequence[Group], found: Sequence[Tensor]) -> Tensor:
    """What was found of every sequence, `[N, ...]` in each group -> in the order of the sequences."""
    return torch.cat(list(found)).index_select(0, torch.cat([group.chosen for group in groups]).argsort())
