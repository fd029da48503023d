"""The maps of all chunks of a scan: the output and the next state as functions of the state at the start of a chunk."""

from typing import NamedTuple

import torch
from torch import Tensor

from fastweights.backends.chunkwise.factors import COLUMNS, Columns


class ChunkMaps(NamedTuple):
    """N chunks, all `[N, M, ...]` with M the heads of all members, as functions of the S that a chunk starts with.

    A chunk reads `base + queries S^T`, writes u = `values + keys S^T`, where only the first vectors have keys, and ends
    with S, decayed by `chunk_decay`, plus `u^T ends`. `chunk_decay` has factors `[N, M, 1, F]` of the columns, or one
    number per row and column `[N, M, R, K]`.
    """

    queries: Tensor | None
    base: Tensor | None
    chunk_decay: Tensor | float
    keys: Tensor | None
    values: Tensor
    ends: Tensor
    factors: Columns

    @property
    def is_plain(self) -> bool:
        """Whether S decays by numbers that all rows share, which kernels for state passing may require."""
        return not isinstance(self.chunk_decay, Tensor) or (self.factors is COLUMNS and self.chunk_decay.shape[-2] == 1)

    def decayed(self, S: Tensor, chunk_decay: Tensor | float) -> Tensor:
        """S `[..., R, K]` at the end of a chunk, without what the chunk writes."""
        if not isinstance(chunk_decay, Tensor):
            return S
        return chunk_decay * S if self.factors is COLUMNS else self.factors.push(chunk_decay.squeeze(-2), S)

    def decayed_back(self, d_S: Tensor, chunk_decay: Tensor | float) -> Tensor:
        """The gradient of S at the start of a chunk, from that of `decayed`."""
        if not isinstance(chunk_decay, Tensor):
            return d_S
        return chunk_decay * d_S if self.factors is COLUMNS else self.factors.pull(chunk_decay.squeeze(-2), d_S)

    def decay_gradient(self, starts: Tensor, d_ends: Tensor) -> Tensor | float:
        """The gradient of `chunk_decay`, from the S before every chunk and the gradients of those after."""
        if not isinstance(self.chunk_decay, Tensor):
            return 0.0
        if self.factors is COLUMNS:
            return (d_ends * starts).sum_to_size(self.chunk_decay.shape)
        with torch.enable_grad():
            chunk_decay = self.chunk_decay.detach().requires_grad_()
            return torch.autograd.grad(self.decayed(starts, chunk_decay), chunk_decay, d_ends)[0]


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
