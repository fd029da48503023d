"""Sequences laid one behind the other in one member of a batch, as flash-linear-attention packs them.

`cu_seqlens`, int `[N + 1]`, says where the N sequences begin and the last one ends: 0, then growing, up to T.
"""

import torch
from torch import Tensor

from fastweights.errors import require
from fastweights.lengths import INTEGERS, can_be_read, within


def check_packed(cu_seqlens: Tensor, like: Tensor) -> None:
    """Raises unless `cu_seqlens` tells where sequences begin in `like`, `[1, T, ...]`."""
    B, T = like.shape[:2]
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


def unpack(x: Tensor, cu_seqlens: Tensor) -> Tensor:
    """`[1, T, ...]` -> `[N, longest, ...]`, a member of the batch for each sequence, padded at its end."""
    lengths = lengths_of(cu_seqlens)
    steps = torch.arange(int(lengths.max()), device=x.device)
    places = (cu_seqlens[:-1, None] + steps).clamp(max=x.shape[1] - 1)
    return x[0].index_select(0, places.flatten()).unflatten(0, places.shape)


def pack(x: Tensor, cu_seqlens: Tensor) -> Tensor:
    """The inverse of `unpack`: `[N, longest, ...]` -> `[1, T, ...]`."""
    return x[within(lengths_of(cu_seqlens), x.shape[1])][None]
