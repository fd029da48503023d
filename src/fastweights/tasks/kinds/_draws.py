"""Pictures for episodes, drawn so that a seed gives the same ones with any version of numpy."""

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from fastweights.tasks.kinds._classes import Classes, Integers


class Drawn(NamedTuple):
    """Pictures for episodes by number, `[B, ways, pictures]`, and the quarter turns of each class, `[B, ways]`."""

    numbers: Integers
    turns: Integers


def draw(classes: Classes, random: np.random.Generator, n: int, ways: int, pictures: int, first: bool) -> Drawn:
    """Different classes for n episodes, and different pictures of each, or their first ones."""
    chosen = different(random, np.full(n, len(classes)), ways)
    own, turns = classes.chosen[chosen % len(classes.chosen)], chosen // len(classes.chosen)
    starts = classes.pictures.starts
    counts = (starts[own + 1] - starts[own]).reshape(-1)
    places = np.tile(np.arange(pictures), (n * ways, 1)) if first else different(random, counts, pictures)
    return Drawn(starts[own][:, :, None] + places.reshape(n, ways, pictures), turns)


def mixed(drawn: Drawn, random: np.random.Generator) -> tuple[Integers, Integers, Integers]:
    """Pictures, their turns and their labels in an order of their own for every episode, `[B, ways * pictures]`."""
    n, ways, pictures = drawn.numbers.shape
    order = random.bit_generator.random_raw(n * ways * pictures).reshape(n, -1).argsort(1, kind="stable")
    labels = np.broadcast_to(np.repeat(np.arange(ways), pictures), order.shape)
    turns = np.repeat(drawn.turns, pictures, axis=1)
    taken = (np.take_along_axis(part, order, 1) for part in (drawn.numbers.reshape(n, -1), turns, labels))
    return tuple(taken)  # type: ignore[return-value]


def moved(images: Tensor, most: int, random: np.random.Generator) -> Tensor:
    """Pictures `[B, T, channels, side, side]`, each moved by up to so many pixels along both sides, edges repeated."""
    if most == 0:
        return images
    pictures, side = images.flatten(0, 1), images.shape[-1]
    offsets = below(random, np.full((2, len(pictures), 1), 2 * most + 1)) - most
    rows, columns = torch.from_numpy((offsets + np.arange(side)).clip(0, side - 1))
    pixels = (rows.unsqueeze(2) * side + columns.unsqueeze(1)).reshape(len(pictures), 1, -1)
    return pictures.flatten(2).gather(2, pixels.expand(-1, pictures.shape[1], -1)).view(images.shape)


def below(random: np.random.Generator, limits: Integers) -> Integers:
    """A number from 0 to below each limit, all as likely but for 2^-32 of the limit.

    By whole numbers from the bits alone: what numpy's own methods make of them may change from version to version.
    """
    bits = random.bit_generator.random_raw(limits.size).reshape(limits.shape) >> np.uint64(32)
    numbers: Integers = (bits * limits.astype(np.uint64) >> np.uint64(32)).astype(np.int64)
    return numbers


def different(random: np.random.Generator, limits: Integers, k: int) -> Integers:
    """k different numbers from 0 to below each limit, `[limits, k]`, in any order with equal chance."""
    found = np.empty((len(limits), k), dtype=np.int64)
    for i in range(k):
        number = below(random, limits - i)
        # The n-th of those that are left: each smaller one that was taken moves it up by one.
        for taken in np.sort(found[:, :i], axis=1).T:
            number += number >= taken
        found[:, i] = number
    return found
