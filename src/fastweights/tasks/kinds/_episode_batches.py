"""Batches of episodes: prefetched by threads, and re-split to another size."""

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from typing import NamedTuple, TypeVar

import torch
from torch import Tensor

from fastweights.tasks.kinds.labelled import Batch

T = TypeVar("T")


class EpisodeInputs(NamedTuple):
    """The inputs of a model, image by image."""

    images: Tensor  # uint8 [B, T, channels, side, side]
    labels: Tensor  # int64 [B, T]: the label that comes with each image, or the code for no label
    sources: Tensor  # int64 [B, T]: index of the data set of each image, which determines the normalisation


def prefetched(make: Callable[[int], T], start: int, workers: int) -> Iterator[T]:
    """Yields `make(start)`, `make(start + 1)` and so on, in order; each thread prefetches two."""
    if workers == 0:
        yield from map(make, count(start))
    with ThreadPoolExecutor(workers) as pool:
        waiting = deque(pool.submit(make, n) for n in range(start, start + 2 * workers))
        try:
            for n in count(start + 2 * workers):
                yield waiting.popleft().result()
                waiting.append(pool.submit(make, n))
        finally:
            for batch in waiting:
                batch.cancel()


def rebatched(blocks: Iterator[Batch], batch_size: int) -> Iterator[Batch]:
    """Re-splits episodes into batches of another size."""
    rest: Batch | None = None
    for block in blocks:
        rest = block if rest is None else joined(rest, block)
        while len(rest.targets) >= batch_size:
            yield part_of(rest, slice(None, batch_size))
            rest = part_of(rest, slice(batch_size, None))
    if rest is not None and len(rest.targets):
        yield rest


def joined(one: Batch, other: Batch) -> Batch:
    """Concatenates two batches of episodes."""
    inputs = EpisodeInputs(*(torch.cat(pair) for pair in zip(one.inputs, other.inputs, strict=True)))
    return Batch(inputs, torch.cat([one.targets, other.targets]))


def part_of(batch: Batch, rows: slice) -> Batch:
    """Selects episodes of a batch."""
    return Batch(EpisodeInputs(*(part[rows] for part in batch.inputs)), batch.targets[rows])
