"""Batches of episodes: drawn ahead, and cut to another size."""

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from typing import NamedTuple, TypeVar

import torch
from torch import Tensor

from fastweights.tasks.kinds.labelled import Batch

T = TypeVar("T")


class Shown(NamedTuple):
    """What a model sees of episodes, picture by picture."""

    images: Tensor  # uint8 [B, T, channels, side, side]
    labels: Tensor  # int64 [B, T]: what it is told with each: a label, or the code for none
    sources: Tensor  # int64 [B, T]: which of the task's data sets it is from, which says how pixels are normalised


def ahead(make: Callable[[int], T], start: int, workers: int) -> Iterator[T]:
    """`make(start)`, `make(start + 1)` and so on, in this order; threads make two each ahead."""
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


def recut(blocks: Iterator[Batch], batch_size: int) -> Iterator[Batch]:
    """The same episodes in batches of another size."""
    left: Batch | None = None
    for block in blocks:
        left = block if left is None else joined(left, block)
        while len(left.targets) >= batch_size:
            yield part_of(left, slice(None, batch_size))
            left = part_of(left, slice(batch_size, None))
    if left is not None and len(left.targets):
        yield left


def joined(one: Batch, other: Batch) -> Batch:
    """The episodes of both."""
    shown = Shown(*(torch.cat(pair) for pair in zip(one.inputs, other.inputs, strict=True)))
    return Batch(shown, torch.cat([one.targets, other.targets]))


def part_of(batch: Batch, rows: slice) -> Batch:
    """Some of the episodes."""
    return Batch(Shown(*(part[rows] for part in batch.inputs)), batch.targets[rows])
