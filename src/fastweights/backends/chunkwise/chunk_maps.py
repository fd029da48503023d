"""The maps of all chunks of a scan: the output and the next state as functions of the state at the start of a chunk."""

from typing import NamedTuple

import torch
from torch import Tensor


class ChunkMaps(NamedTuple):
    """N chunks, all `[N, M, ...]` with M the heads of all members, as functions of the S that a chunk starts with.

    A chunk reads `base + queries S^T`, writes u = `values + keys S^T`, where only the first vectors have keys, and ends
    with `S * kept + u^T ends`.
    """

    queries: Tensor | None
    base: Tensor | None
    kept: Tensor | float
    keys: Tensor | None
    values: Tensor
    ends: Tensor


def written(values: Tensor, keys: Tensor | None, S: Tensor) -> Tensor:
    """u of every step; only the first vectors have keys."""
    if keys is None:
        return values
    count = keys.shape[-2]
    if count == values.shape[-2]:
        return add_product(values, keys, S.mT) if values.ndim > 3 else torch.baddbmm(values, keys, S.mT)
    return torch.cat([written(values[..., :count, :], keys, S), values[..., count:, :]], -2)


def add_product(base: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """base + x y in one pass, over any leading axes."""
    return torch.baddbmm(*(z.flatten(0, -3) for z in (base, x, y))).unflatten(0, base.shape[:-2])
