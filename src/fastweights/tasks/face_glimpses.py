"""Classification of faces of new people from 24 glimpses."""

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from fastweights.core.errors import InputError, require
from fastweights.tasks.data_sets import cmu_faces
from fastweights.tasks.kinds._random import ORDER, random_stream
from fastweights.tasks.kinds.labelled import Batch, Sets
from fastweights.tasks.sources.archives import members
from fastweights.tasks.sources.glimpses import GlimpseTask, cut_glimpses
from fastweights.tasks.sources.images import Bytes, read_image, scale_by_area
from fastweights.tasks.sources.ridge import oriented_gradients, ridge_accuracy

CMU_PATTERN = (
    r"(?P<person>[^/_]+)_(?P<pose>straight|left|right|up)_(?P<expression>neutral|happy|sad|angry)"
    r"_(?P<eyes>open|sunglasses)_2\.pgm$"
)
"""The 64 x 60 images of the CMU faces; faulty ones end in `.bad`."""

WHOLE = (0, 0, 0, 0)
"""The box of the whole image."""

MOST_SHIFT = 100


class Face(NamedTuple):
    """Views of a face, 48 x 48, of which the first is the unshifted one."""

    person: str
    label: str
    views: list[Bytes]


@dataclass(frozen=True)
class FaceGlimpses(GlimpseTask):
    """Image classification of faces from glimpses.

    Input -> target: 24 glimpses of 12 x 12 pixels -> an attribute of the face from the name of the file, such as its
    pose.

    Images are scaled to 48 x 48 by area, without keeping the aspect ratio, cut into quadrants, and shown like the
    digits of `mnist-glimpses`. One of `folds` parts of the people, rounded up, is for the test, the next for
    validation, the others for training; no person is in two of them. Baselines are ridge regression on pixels and on
    oriented gradients. The faces of the paper, CMU Multi-PIE, need a licence. The default is the CMU Face Images of T.
    Mitchell: 20 people, 4 poses, 4 (slight) expressions.

    Files: `cmu-faces/faces.tar.gz` of the UCI repository, or whatever `folder` names. The CMU Face Images (T. Mitchell)
    may be used free of charge for any educational purpose, with attribution; 372 of them are for training, 126 for
    validation and 126 for the test.

    Args:
        folder: A folder with images, or a `.tar` or `.tar.gz` of one; empty for the CMU Face Images, which are searched
            in `$FASTWEIGHTS_DATA` as `cmu-faces/faces.tar.gz`. Formats other than PGM need pillow.
        pattern: A regular expression that the paths of the images match, searched for in the path inside `folder`, with
            a group `person` and one for each label, such as `(?P<person>[^/]+)/(?P<expression>[^/]+)/[^/]+[.]png$`.
        label: The group to predict: "pose", "expression" or "eyes" with the default pattern.
        box: Left, top, right and bottom of the used part of an image, in pixels; the whole image if all are 0.
        shift: Pixels by which the box is moved for training, in eight directions: nine images per image; 0 for none.
        mirrored: Whether training also uses mirror images; not for labels such as left and right.
        folds: Number of parts into which people are divided.
        fold: Index of the part for the test, modulo `folds`.
        data_seed: Seed of the division.

    Source: Ba, Hinton, Mnih, Leibo and Ionescu 2016, Sec. 4.3.
    """

    folder: str = ""
    pattern: str = CMU_PATTERN
    label: str = "pose"
    box: tuple[int, int, int, int] = WHOLE
    shift: int = 0
    mirrored: bool = False
    folds: int = 5
    fold: int = 0
    data_seed: int = 0

    patch: ClassVar[int] = 12

    def __post_init__(self) -> None:
        require(self.data_seed >= 0, "data_seed", "at least 0", self.data_seed)
        require(0 <= self.shift <= MOST_SHIFT, "shift", f"from 0 to {MOST_SHIFT}", self.shift)
        require(self.folds >= 3, "folds", "at least 3", self.folds)
        require(self.fold >= 0, "fold", "at least 0", self.fold)
        left, top, right, bottom = self.box
        holds = self.box == WHOLE or (0 <= left < right and 0 <= top < bottom)
        require(holds, "box", "left, top, right, bottom with left < right and top < bottom", self.box)
        groups = sorted(self._expression.groupindex)
        require("person" in groups, "pattern", "a pattern with a group (?P<person>...)", repr(self.pattern))
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
    def majority_class(self) -> int:
        """The most frequent label of the training set."""
        return int(self.sets.train.targets.flatten().bincount().argmax())

    @property
    def chance(self) -> dict[str, float]:
        """Scores of the most frequent label of the training set."""
        right = (self.sets.test.targets == self.majority_class).double().mean()
        return {"loss": self._uniform_loss, "accuracy": float(right)}

    @cached_property
    def labels(self) -> tuple[str, ...]:
        """The classes, sorted; class n is label n."""
        return tuple(sorted({face.label for face in self.faces}))

    @cached_property
    def people(self) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
        """Names of the people in the training, the validation and the test set."""
        names = sorted({face.person for face in self.faces})
        require(
            len(names) >= 3, "folder", "a folder with images of at least 3 people", f"{len(names)}", "Check pattern."
        )
        n = -(-len(names) // self.folds)
        order = np.roll(random_stream(self.data_seed, ORDER).permutation(len(names)), -(self.fold % self.folds) * n)
        drawn = [names[n] for n in order]
        parts = drawn[2 * n :], drawn[n : 2 * n], drawn[:n]
        return tuple(tuple(sorted(part)) for part in parts)  # type: ignore[return-value]

    @cached_property
    def faces(self) -> list[Face]:
        """All images whose path matches, in the order of their paths."""
        path = Path(self.folder) if self.folder else cmu_faces.ARCHIVE.fetch()
        files = sorted(members(path, self._expression.search))
        require(
            bool(files), "folder", "a folder with images whose paths match pattern", f"none in {path}", "Check pattern."
        )
        return [self._face(name, content) for name, content in files]

    def facts(self) -> dict[str, Any]:
        digest = hashlib.sha256()
        for person, label, (view, *_) in self.faces:
            digest.update(f"{person}\0{label}\0".encode(errors="surrogateescape") + view.tobytes())
        return {"faces": digest.hexdigest()}

    def _face(self, name: str, content: bytes) -> Face:
        match = self._expression.search(name)
        assert match is not None
        whole = None not in (match["person"], match[self.label])
        require(
            whole, "pattern", f"a pattern whose groups person and {self.label} take part in every match", repr(name)
        )
        return Face(match["person"], match[self.label], list(self._views(read_image(content, name), name)))

    def _views(self, image: Bytes, name: str) -> Iterator[Bytes]:
        """Yields the box, the shifted boxes, and the mirror image of each."""
        height, width = image.shape
        left, top, right, bottom = (0, 0, width, height) if self.box == WHOLE else self.box
        require(
            right <= width and bottom <= height, name, f"at least {right} x {bottom}, for box", f"{width} x {height}"
        )
        padded = np.pad(image, self.shift, mode="edge")
        steps = (self.shift, 0, 2 * self.shift) if self.shift else (0,)
        for down, across in product(steps, steps):
            moved = padded[top + down : bottom + down, left + across : right + across]
            view = scale_by_area(moved, 4 * self.patch, 4 * self.patch)
            yield from (view, view[:, ::-1]) if self.mirrored else (view,)

    def baselines(self) -> dict[str, float]:
        """Accuracy of ridge regression, whose strength is chosen on validation data."""
        images, labels = zip(*(self._plain(people) for people in self.people), strict=True)
        return {
            "Ridge regression on pixels": ridge_accuracy(
                [pixels.reshape(len(pixels), -1) for pixels in images], labels
            ),
            "Ridge regression on oriented gradients": ridge_accuracy(list(map(oriented_gradients, images)), labels),
        }

    def _plain(self, people: tuple[str, ...]) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        faces = [face for face in self.faces if face.person in people]
        images = np.stack([face.views[0] for face in faces]) / 255
        return images, np.array([self.labels.index(face.label) for face in faces])

    def _make_sets(self) -> Sets:
        train, validation, test = self.people
        return Sets(self._of(train, None), self._of(validation, 1), self._of(test, 1))

    def _of(self, people: tuple[str, ...], views: int | None) -> Batch:
        """The first `views` views of each person, or all views."""
        faces = [(face.label, view) for face in self.faces if face.person in people for view in face.views[:views]]
        targets = [[self.labels.index(label)] for label, _ in faces]
        images = torch.from_numpy(np.stack([view for _, view in faces]))
        return Batch(cut_glimpses(images, self.patch), torch.tensor(targets))
