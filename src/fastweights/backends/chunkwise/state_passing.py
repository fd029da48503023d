"""The walk of S from chunk to chunk, and that of its gradient back: all that is not done for all chunks at once."""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from fastweights.compiler.targets.target import walks


class Maps(NamedTuple):
    """What every chunk does with the S that it starts with, for all chunks at once.

    It reads `base + queries S^T`, writes u = `values + keys S^T`, where only the first vectors have keys, and ends with
    `S * kept + u^T ends`.
    """

    queries: Tensor | None
    base: Tensor | None
    kept: Tensor | float
    keys: Tensor | None
    values: Tensor
    ends: Tensor


def in_one_launch(S: Tensor) -> bool:
    """Whether the device of S has kernels that walk through all chunks."""
    return walks(S.device.type) is not None


def walk(S: Tensor, maps: Maps) -> tuple[Tensor, Tensor]:
    """Carries S `[M, R, K]` from chunk to chunk; returns the S before every chunk, and the last."""
    is_seen = torch.is_grad_enabled() or torch.compiler.is_compiling()
    kernels = None if is_seen else walks(S.device.type)
    return _go(S, maps) if kernels is None else kernels.go(S, maps)


@torch.no_grad()
def walk_back(
    maps: Maps, starts: Tensor, d_read: Tensor | None, d_last: Tensor, d_starts: Tensor | None
) -> tuple[Maps, Tensor]:
    """The gradients of the maps and of the first S: `walk` and the reading, backwards. `d_starts` is what else the
    `starts` of chunks are given."""
    kernels = walks(d_last.device.type)
    go_back = _go_back if kernels is None else kernels.go_back
    d_values, d_after, d_S = go_back(maps, d_read, d_last, d_starts)
    count = 0 if maps.keys is None else maps.keys.shape[-2]
    d_maps = Maps(
        queries=None if d_read is None else d_read @ starts,
        base=d_read,
        kept=_onto(maps.kept, d_after * starts) if isinstance(maps.kept, Tensor) else 0.0,
        keys=None if maps.keys is None else d_values[..., :count, :] @ starts,
        values=d_values,
        ends=written(maps.values, maps.keys, starts) @ d_after,
    )
    return d_maps, d_S


def _go(S: Tensor, maps: Maps) -> tuple[Tensor, Tensor]:
    starts = []
    for c, k, v, e in _each(maps.kept, maps.keys, maps.values, maps.ends):
        starts.append(S)
        S = torch.baddbmm(_fade(S, c), written(v, k, S).mT, e)
    return torch.stack(starts), S


def _go_back(maps: Maps, d_read: Tensor | None, d_S: Tensor, d_starts: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of what is written, of the S after every chunk, and of the first S."""
    d_written, d_after = [], []
    for c, k, e, q, d_r, d_start in reversed(_each(maps.kept, maps.keys, maps.ends, maps.queries, d_read, d_starts)):
        d_u = e @ d_S.mT
        d_after.append(d_S)
        d_written.append(d_u)
        d_S = _fade(d_S, c) if d_r is None else torch.baddbmm(_fade(d_S, c), d_r.mT, q)
        if k is not None:
            d_S = torch.baddbmm(d_S, d_u[:, : k.shape[-2]].mT, k)
        d_S = d_S if d_start is None else d_S + d_start
    return torch.stack(d_written[::-1]), torch.stack(d_after[::-1]), d_S


def written(values: Tensor, keys: Tensor | None, S: Tensor) -> Tensor:
    """u of every step; only the first have keys."""
    if keys is None:
        return values
    count = keys.shape[-2]
    if count == values.shape[-2]:
        return plus(values, keys, S.mT) if values.ndim > 3 else torch.baddbmm(values, keys, S.mT)
    return torch.cat([written(values[..., :count, :], keys, S), values[..., count:, :]], -2)


def plus(base: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """base + x y in one pass, over any leading axes."""
    return torch.baddbmm(*(z.flatten(0, -3) for z in (base, x, y))).unflatten(0, base.shape[:-2])


def _onto(kept: Tensor, gradient: Tensor) -> Tensor:
    """Of one number a chunk, or of one a column."""
    return gradient.sum((-2, -1) if kept.shape[-1] == 1 else -2, keepdim=True)


def _fade(S: Tensor, kept: Tensor | float) -> Tensor:
    return kept * S if isinstance(kept, Tensor) else S


def _each(*maps: Any) -> list[tuple[Any, ...]]:
    """The maps chunk by chunk. unbind, since indexing would make a backward pass quadratic in T."""
    count = next(len(part) for part in maps if isinstance(part, Tensor))
    columns = [part.unbind(0) if isinstance(part, Tensor) else [part] * count for part in maps]
    return list(zip(*columns, strict=True))
