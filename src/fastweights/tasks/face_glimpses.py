"""Faces of people who were never seen before, through 24 glimpses."""

import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import ClassVar, NamedTuple

import numpy as np
import torch

from fastweights.errors import InputError, require
from fastweights.tasks._archives import members
from fastweights.tasks._files import require_found
from fastweights.tasks._glimpses import GlimpseTask, cut_glimpses
from fastweights.tasks._images import Bytes, read_image, scale_by_area
from fastweights.tasks.kinds._random import ORDER, random_stream
from fastweights.tasks.kinds.labelled import Batch, Sets

CMU_FACES = "cmu-faces/faces.tar.gz"
CMU_PATTERN = (
    r"(?P<person>[^/_]+)_(?P<pose>straight|left|right|up)_(?P<expression>neutral|happy|sad|angry)"
    r"_(?P<eyes>open|sunglasses)_2\.pgm$"
)
"""The 64 x 60 pictures of the CMU faces; the faulty ones end in `.bad`."""

HELD_OUT = 5
"""One in so many people is in the test set, and one in so many in the validation set."""


class Face(NamedTuple):
    """An image of somebody, 48 x 48."""

    person: str
    label: str
    image: Bytes


@dataclass(frozen=True)
class FaceGlimpses(GlimpseTask):
    """24 glimpses of 12 x 12 pixels -> what the file's name says of the face, such as its pose.

    Images are scaled to 48 x 48 by area (nothing is cut off, so that another shape is squeezed), cut into quadrants,
    and shown as the digits of `mnist-glimpses` are. A fifth of the people, rounded up, is for the test, a fifth for
    validation, the others for training; nobody is in two of them. The paper's faces, CMU Multi-PIE, are licensed; what
    stands in for them by default are the CMU Face Images of T. Mitchell: 20 people, 4 poses, 4 (slight) expressions.

    Files: `cmu-faces/faces.tar.gz` of the UCI repository, or whatever `folder` names. The CMU Face Images (T. Mitchell)
    may be used free of charge for any educational purpose, with attribution; 372 of them are for training, 126 for
    validation and 126 for the test.

    Args:
        folder: A folder with images, or a `.tar` or `.tar.gz` of one; empty for the CMU Face Images, which are looked
            for in `$FASTWEIGHTS_DATA` as `cmu-faces/faces.tar.gz`. PGM is read as it is, other formats with pillow.
        pattern: A regular expression that the paths of the images match, searched for in the path inside `folder`, with
            a group `person` and one for each label, such as `(?P<person>[^/]+)/(?P<expression>[^/]+)/[^/]+[.]png$`.
        label: The group to predict: "pose", "expression" or "eyes" with the default pattern.
        data_seed: Which people are in which set.

    Source: Ba, Hinton, Mnih, Leibo and Ionescu 2016, Sec. 4.3.
    """

    folder: str = ""
    pattern: str = CMU_PATTERN
    label: str = "pose"
    data_seed: int = 0

    patch: ClassVar[int] = 12

    def __post_init__(self) -> None:
        require(self.data_seed >= 0, "data_seed", "at least 0", self.data_seed)
        groups = sorted(self._expression.groupindex)
        require("person" in groups, "pattern", "with a group (?P<person>...)", repr(self.pattern))
        labels = [group for group in groups if group != "person"]
        require(
            self.label in labels, "label", f"one of {', '.join(labels) or 'no'} groups of pattern", repr(self.label)
        )

    @cached_property
    def _expression(self) -> re.Pattern[str]:
        try:
            return re.compile(self.pattern)
        except re.error as error:
            raise InputError(f"pattern must be a regular expression, got {self.pattern!r}: {error}.") from None

    @property
    def output_size(self) -> int:
        return len(self.labels)

    @property
    def commonest(self) -> int:
        """The commonest label of the training set."""
        return int(self.sets.train.targets.flatten().bincount().argmax())

    @property
    def chance(self) -> dict[str, float]:
        """Of always giving the commonest label of the training set."""
        right = (self.sets.test.targets == self.commonest).double().mean()
        return {"loss": self._uniform_loss, "accuracy": float(right)}

    @cached_property
    def labels(self) -> tuple[str, ...]:
        """The classes, sorted; class n is label n."""
        return tuple(sorted({face.label for face in self.faces}))

    @cached_property
    def people(self) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
        """Who is in the training, the validation and the test set."""
        names = sorted({face.person for face in self.faces})
        require(len(names) >= 3, "folder", "with images of at least 3 people", f"{len(names)}", "Look at pattern.")
        drawn = [names[n] for n in random_stream(self.data_seed, ORDER).permutation(len(names))]
        n = -(-len(names) // HELD_OUT)
        parts = drawn[2 * n :], drawn[n : 2 * n], drawn[:n]
        return tuple(tuple(sorted(part)) for part in parts)  # type: ignore[return-value]

    @cached_property
    def faces(self) -> list[Face]:
        """All images whose path matches, in the order of their paths."""
        path = Path(self.folder) if self.folder else require_found(CMU_FACES, "the UCI repository, CMU Face Images")
        files = sorted(members(path, self._expression.search))
        require(bool(files), "folder", "with images whose paths match pattern", f"none in {path}", "Look at pattern.")
        return [self._face(name, content) for name, content in files]

    def _face(self, name: str, content: bytes) -> Face:
        match = self._expression.search(name)
        assert match is not None
        whole = None not in (match["person"], match[self.label])
        require(whole, "pattern", f"one whose groups person and {self.label} take part in every match", repr(name))
        image = scale_by_area(read_image(content, name), 4 * self.patch, 4 * self.patch)
        return Face(match["person"], match[self.label], image)

    def _make_sets(self) -> Sets:
        return Sets(*(self._of(people) for people in self.people))

    def _of(self, people: tuple[str, ...]) -> Batch:
        faces = [face for face in self.faces if face.person in people]
        targets = [[self.labels.index(face.label)] for face in faces]
        images = torch.from_numpy(np.stack([face.image for face in faces]))
        return Batch(cut_glimpses(images, self.patch), torch.tensor(targets))
