"""State passing: S is carried from chunk to chunk, and its gradient back. All else runs for all chunks at once."""

from functools import cache
from importlib import import_module
from typing import Any, Protocol

import torch
from torch import Tensor

from fastweights.backends.chunkwise import loop
from fastweights.backends.chunkwise.chunk_maps import ChunkMaps, written
from fastweights.compiler.targets.target import TARGETS, target_of

IMPLEMENTATIONS = {"triton": "triton.state_passing"}
"""The modules of this package with kernels for a target. All other targets use `loop`: on a CPU, a call of a matrix
product takes no longer than its work."""


class StatePassing(Protocol):
    """Passes S `[M, R, K]` through all chunks. Modules implement the protocol; `loop` is the definition."""

    IS_FUSED: bool
    """Whether all chunks take one launch, so that keeping S in memory between chunks gains nothing."""

    def walk(self, S: Tensor, maps: ChunkMaps) -> tuple[Tensor, Tensor]:
        """The S before every chunk, `[N, M, R, K]`, and the last S."""

    def walk_back(
        self, maps: ChunkMaps, d_read: Tensor | None, d_last: Tensor, d_starts: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The gradients of what is written, of the S after every chunk, and of the first S.

        `d_read` is the gradient of what the queries read, and `d_starts` that of the S before every chunk.
        """


@cache
def state_passing_for(device: str) -> StatePassing:
    """The implementation for a type of device; the loop where the device has no kernels, or nothing to build them."""
    target = TARGETS.get(device, "")
    has_kernels = target in IMPLEMENTATIONS and not target_of(device).missing_requirement()
    module: Any = import_module(f"{__package__}.{IMPLEMENTATIONS[target]}") if has_kernels else loop
    return module


def walk(S: Tensor, maps: ChunkMaps) -> tuple[Tensor, Tensor]:
    """The S before every chunk, and the last S. Where autograd or a compiler must see the operations, by the loop."""
    if torch.is_grad_enabled() or torch.compiler.is_compiling():
        return loop.walk(S, maps)
    return _implementation(maps, S).walk(S, maps)


def _implementation(maps: ChunkMaps, S: Tensor) -> StatePassing:
    """The implementation for a device, or the loop where S decays in a way that the kernels do not know."""
    return state_passing_for(S.device.type) if maps.is_plain else loop


@torch.no_grad()
def walk_back(
    maps: ChunkMaps, starts: Tensor, d_read: Tensor | None, d_last: Tensor, d_starts: Tensor | None
) -> tuple[ChunkMaps, Tensor]:
    """The gradients of the maps and of the first S: those of `walk` and of the reads.

    `d_starts` is a further gradient of the `starts` of chunks.
    """
    d_values, d_after, d_S = _implementation(maps, d_last).walk_back(maps, d_read, d_last, d_starts)
    count = 0 if maps.keys is None else maps.keys.shape[-2]
    d_maps = ChunkMaps(
        queries=None if d_read is None else d_read @ starts,
        base=d_read,
        chunk_decay=maps.decay_gradient(starts, d_after),
        keys=None if maps.keys is None else d_values[..., :count, :] @ starts,
        values=d_values,
        ends=written(maps.values, maps.keys, starts) @ d_after,
        factors=maps.factors,
    )
    return d_maps, d_S
