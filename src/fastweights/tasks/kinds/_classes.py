"""Classes of images."""

from typing import NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Integers = NDArray[np.int64]
Bytes = NDArray[np.uint8]

QUARTER_TURNS = 4


class ImagesByClass(Protocol):
    """Images sorted by class."""

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the classes."""

    @property
    def starts(self) -> Integers:
        """Index of the first image of every class, and the end of the last, `[classes + 1]`."""

    @property
    def images(self) -> Bytes:
        """The images, `[images, channels, side, side]`."""

    @property
    def digest(self) -> str:
        """Digest of the files of the images."""


class Classes(NamedTuple):
    """A subset of the classes of a set of images. With 4 `turns`, their rotations are additional classes."""

    image_set: ImagesByClass
    chosen: Integers
    turns: int

    def __len__(self) -> int:
        return len(self.chosen) * self.turns

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the classes, without rotations."""
        return tuple(self.image_set.names[n] for n in self.chosen)


class Normalisation(NamedTuple):
    """Mean and standard deviation of every channel, of pixels from 0 to 1."""

    mean: tuple[float, ...] = (0.0,)
    deviation: tuple[float, ...] = (1.0,)


class PlainImages:
    """The images without episodes, for `torch.utils.data`: uint8 `[channels, side, side]`, and the class."""

    def __init__(self, classes: Classes) -> None:
        starts = classes.image_set.starts
        self.names = classes.names
        self.images = classes.image_set.images
        self.numbers = np.concatenate([np.arange(starts[n], starts[n + 1]) for n in classes.chosen])
        self.labels = np.repeat(np.arange(len(classes.chosen)), np.diff(starts)[classes.chosen])

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return torch.from_numpy(self.images[self.numbers[index]].copy()), int(self.labels[index])


def rotated(images: Bytes, turns: Integers) -> Bytes:
    """Rotates squares `[..., channels, side, side]`, each by its number of quarter turns to the left."""
    images = np.ascontiguousarray(images)
    for n in range(1, QUARTER_TURNS):
        where = turns == n
        if where.any():
            images[where] = np.rot90(images[where], n, axes=(-2, -1))
    return images
