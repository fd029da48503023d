"""State passing as a loop over chunks in PyTorch: the definition, for any device."""

from typing import Any

import torch
from torch import Tensor

from fastweights.backends.chunkwise.chunk_maps import ChunkMaps, written

IS_FUSED = False


def walk(S: Tensor, maps: ChunkMaps) -> tuple[Tensor, Tensor]:
    """The S before every chunk, and the last S."""
    starts = []
    for chunk_decay, keys, values, ends in _per_chunk(maps.chunk_decay, maps.keys, maps.values, maps.ends):
        starts.append(S)
        S = torch.baddbmm(maps.decayed(S, chunk_decay), written(values, keys, S).mT, ends)
    return _stacked(starts), S


def walk_back(
    maps: ChunkMaps, d_read: Tensor | None, d_last: Tensor, d_starts: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of what is written, of the S after every chunk, and of the first S."""
    d_S, d_written, d_after = d_last, [], []
    chunks = _per_chunk(maps.chunk_decay, maps.keys, maps.ends, maps.queries, d_read, d_starts)
    for chunk_decay, keys, ends, queries, d_r, d_start in reversed(chunks):
        d_u = ends @ d_S.mT
        d_after.append(d_S)
        d_written.append(d_u)
        d_S = maps.decayed_back(d_S, chunk_decay)
        d_S = d_S if d_r is None else torch.baddbmm(d_S, d_r.mT, queries)
        if keys is not None:
            d_S = torch.baddbmm(d_S, d_u[:, : keys.shape[-2]].mT, keys)
        d_S = d_S if d_start is None else d_S + d_start
    return _stacked(d_written[::-1]), _stacked(d_after[::-1]), d_S


def _stacked(parts: list[Tensor]) -> Tensor:
    """The parts along a new first axis. Large states have blocks of one chunk, which is not copied."""
    return parts[0].unsqueeze(0) if len(parts) == 1 else torch.stack(parts)


def _per_chunk(*maps: Any) -> list[tuple[Any, ...]]:
    """The maps chunk by chunk. Unbind, since indexing would make a backward pass quadratic in T."""
    count = next(len(part) for part in maps if isinstance(part, Tensor))
    columns = [part.unbind(0) if isinstance(part, Tensor) else [part] * count for part in maps]
    return list(zip(*columns, strict=True))
