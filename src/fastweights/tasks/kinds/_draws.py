"""Random draws of images for episodes, reproducible with any version of numpy."""

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from fastweights.tasks.kinds._classes import Classes, Integers


class EpisodeIndices(NamedTuple):
    """Indices of images for episodes, `[B, ways, images]`, and the quarter turns of each class, `[B, ways]`."""

    numbers: Integers
    turns: Integers


def draw(
    classes: Classes, random: np.random.Generator, n: int, ways: int, per_class: int, first: bool
) -> EpisodeIndices:
    """Draws different classes for n episodes, and different images of each, or their first ones."""
    chosen = different(random, np.full(n, len(classes)), ways)
    originals, turns = classes.chosen[chosen % len(classes.chosen)], chosen // len(classes.chosen)
    starts = classes.image_set.starts
    counts = (starts[originals + 1] - starts[originals]).reshape(-1)
    offsets = np.tile(np.arange(per_class), (n * ways, 1)) if first else different(random, counts, per_class)
    return EpisodeIndices(starts[originals][:, :, None] + offsets.reshape(n, ways, per_class), turns)


def shuffled(drawn: EpisodeIndices, random: np.random.Generator) -> tuple[Integers, Integers, Integers]:
    """Shuffles the images, their turns and their labels in every episode, `[B, ways * images]`."""
    n, ways, per_class = drawn.numbers.shape
    order = random.bit_generator.random_raw(n * ways * per_class).reshape(n, -1).argsort(1, kind="stable")
    labels = np.broadcast_to(np.repeat(np.arange(ways), per_class), order.shape)
    turns = np.repeat(drawn.turns, per_class, axis=1)
    shuffled = (np.take_along_axis(part, order, 1) for part in (drawn.numbers.reshape(n, -1), turns, labels))
    return tuple(shuffled)  # type: ignore[return-value]


def shifted(images: Tensor, most: int, random: np.random.Generator) -> Tensor:
    """Shifts each image of `[B, T, channels, side, side]` by up to `most` pixels per axis; edges are repeated."""
    if most == 0:
        return images
    flat, side = images.flatten(0, 1), images.shape[-1]
    offsets = below(random, np.full((2, len(flat), 1), 2 * most + 1)) - most
    rows, columns = torch.from_numpy((offsets + np.arange(side)).clip(0, side - 1))
    pixels = (rows.unsqueeze(2) * side + columns.unsqueeze(1)).reshape(len(flat), 1, -1)
    return flat.flatten(2).gather(2, pixels.expand(-1, flat.shape[1], -1)).view(images.shape)


def below(random: np.random.Generator, limits: Integers) -> Integers:
    """Draws a number from 0 to below each limit, uniformly up to 2^-32 of the limit.

    Integers are computed from raw bits, since numpy's methods may change from version to version.
    """
    bits = random.bit_generator.random_raw(limits.size).reshape(limits.shape) >> np.uint64(32)
    numbers: Integers = (bits * limits.astype(np.uint64) >> np.uint64(32)).astype(np.int64)
    return numbers


def different(random: np.random.Generator, limits: Integers, k: int) -> Integers:
    """Draws k different numbers from 0 to below each limit, `[limits, k]`, in uniformly random order."""
    numbers = np.empty((len(limits), k), dtype=np.int64)
    for i in range(k):
        number = below(random, limits - i)
        # The n-th remaining number: each smaller one that was taken moves it up by one.
        for taken in np.sort(numbers[:, :i], axis=1).T:
            number += number >= taken
        numbers[:, i] = number
    return numbers
