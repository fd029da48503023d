"""Sequential adaptation: classes of one data set, then of another."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fastweights.core.errors import require
from fastweights.core.measurements import Detail, Point
from fastweights.tasks.kinds._classes import Classes, Normalisation
from fastweights.tasks.kinds._draws import below, draw, mixed
from fastweights.tasks.kinds._episode_batches import Shown
from fastweights.tasks.kinds.episodes import Episodes, Labels, mean_of
from fastweights.tasks.kinds.labelled import Batch, Metrics
from fastweights.tasks.mini_imagenet import MiniImagenet
from fastweights.tasks.omniglot import Omniglot

NAMES = ("omniglot", "mini_imagenet")


@dataclass(frozen=True)
class SequentialAdaptation(Episodes):
    """Characters, then photographs, or photographs first, each told one step later what it was -> the label of each.

    Both parts are episodes with delayed labels, 0 to N - 1 in each; the label of the last picture of the first part
    comes with the first picture of the second. For training, a coin says for every batch which is first, and both parts
    lose up to `trim` pictures at their ends. For validation and the test nothing is cut off, and every other episode
    begins with photographs. Numbers on test data are separate for the two orders: the details of the group
    "omniglot_first_mini_imagenet" are the accuracies of the k-th picture of a class and of "all" pictures of that part,
    and the curve "omniglot_first" is the accuracy over time steps.

    Files: those of `omniglot` and of `mini-imagenet`.

    Args:
        shots: K in each part.
        labels: "delayed", as there is nothing else here.
        trim: Pictures that either part may lose at most.
        side: Pixels of a side.

    Source: Irie et al. 2022, Sec. 4.2 and Appendix B.4.
    """

    shots: int = 15
    labels: Labels = "delayed"
    trim: int = 60
    side: int = 84

    at_once: ClassVar[int] = 10

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.labels == "delayed", "labels", "'delayed'", repr(self.labels))
        length = self.ways * self.shots
        require(0 <= self.trim < length, "trim", f"from 0 to below {length}, the pictures of a part", self.trim)
        require(1 <= self.side <= 84, "side", "from 1 to 84", self.side)

    @property
    def shape(self) -> tuple[int, int]:
        return 3, self.side

    @property
    def normalisations(self) -> tuple[Normalisation, ...]:
        return Omniglot.NORMALISATION, MiniImagenet.NORMALISATION

    def source(self, image: NDArray[np.uint8]) -> int:
        """Characters are grey, photographs are not."""
        return int(np.ptp(image, axis=0).max() > 0)

    def classes(self, split: int) -> tuple[Classes, ...]:
        return tuple(part.classes(split)[0] for part in self._parts)

    @cached_property
    def _parts(self) -> tuple[Episodes, ...]:
        return Omniglot(side=self.side), MiniImagenet(side=self.side)

    def _draw(self, classes: Sequence[Classes], random: np.random.Generator, n: int, split: int = 0) -> Batch:
        first = split != 0 and self.evaluation == "published"
        parts = [self._part(source, part, random, n, first) for source, part in enumerate(classes)]
        if split == 0:
            coin, *cut = below(random, np.array([2, self.trim + 1, self.trim + 1]))
            ends = [part.targets.shape[1] - lost for part, lost in zip(parts, cut, strict=True)]
            parts = [_cut(part, int(end)) for part, end in zip(parts, ends, strict=True)]
            return self._joined(parts[:: 1 if coin else -1])
        whole, other = self._joined(parts), self._joined(parts[::-1])
        return Batch(Shown(*map(_by_turns, whole.inputs, other.inputs)), _by_turns(whole.targets, other.targets))

    def _part(self, source: int, classes: Classes, random: np.random.Generator, n: int, first: bool) -> Batch:
        """An episode of one data set, with nothing told yet."""
        numbers, turns, labels = mixed(draw(classes, random, n, self.ways, self.shots, first), random)
        shown = self.shown(classes, numbers, turns, np.zeros_like(labels), source)
        return Batch(shown, torch.from_numpy(labels + self.ways * source))

    def _joined(self, parts: Sequence[Batch]) -> Batch:
        """One after the other; what is told are the labels, one step later."""
        images, _, sources = (torch.cat(part, dim=1) for part in zip(*(part.inputs for part in parts), strict=True))
        targets = torch.cat([part.targets for part in parts], dim=1)
        none = targets.new_full((len(targets), 1), self.no_label)
        return Batch(Shown(images, torch.cat([none, targets[:, :-1] % self.ways], dim=1), sources), targets)

    def instances(self, right: Tensor, targets: Tensor) -> Metrics:
        """Accuracies by the data set that comes first: of each part, of the k-th pictures of a class, of each step."""
        found: Metrics = {}
        first = targets[:, 0] // self.ways
        for order, name in enumerate(NAMES):
            rows = first == order
            own, sources = right[rows], targets[rows] // self.ways
            for source, part in enumerate(NAMES if len(own) else ()):
                kept, asked = (whole[sources == source].view(len(own), -1) for whole in (own, targets[rows]))
                counted = super().instances(kept, asked)
                group = f"{name}_first_{part}"
                found |= {Detail(group, instance.member): mean for instance, mean in counted.items()}
                found[Detail(group, "all")] = mean_of(kept)
            found |= {Point(f"{name}_first", step): mean_of(own[:, step]) for step in range(own.shape[1])}
        return found


def _cut(part: Batch, end: int) -> Batch:
    return Batch(Shown(*(tensor[:, :end] for tensor in part.inputs)), part.targets[:, :end])


def _by_turns(one: Tensor, other: Tensor) -> Tensor:
    """The even rows of one and the odd rows of the other."""
    mixed_rows = one.clone()
    mixed_rows[1::2] = other[1::2]
    return mixed_rows
