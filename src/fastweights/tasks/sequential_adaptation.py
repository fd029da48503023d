"""Sequential adaptation: few-shot learning on one data set, then on another."""

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
from fastweights.tasks.kinds._draws import below, draw, shuffled
from fastweights.tasks.kinds._episode_batches import EpisodeInputs
from fastweights.tasks.kinds.episodes import Episodes, Labels, mean_of
from fastweights.tasks.kinds.labelled import Batch, Metrics
from fastweights.tasks.mini_imagenet import MiniImagenet
from fastweights.tasks.omniglot import Omniglot

NAMES = ("omniglot", "mini_imagenet")


@dataclass(frozen=True)
class SequentialAdaptation(Episodes):
    """Few-shot classification of two data sets in turn, with delayed labels.

    Input -> target: Characters, then photographs, or photographs first, each followed by its label one step later ->
    the label of each.

    Both parts are episodes with delayed labels, 0 to N - 1 in each; the label of the last image of the first part comes
    with the first image of the second. In training, the order is random per batch, and both parts lose up to `trim`
    images at their ends. In validation and the test nothing is trimmed, and every other episode starts with
    photographs. Numbers on test data are separate for the two orders. The details of the group
    "omniglot_first_mini_imagenet" are the accuracies of the k-th image of a class, and of "all" images of that part.
    The curve "omniglot_first" is the accuracy over time steps.

    Files: those of `omniglot` and of `mini-imagenet`.

    Args:
        shots: K in each part.
        labels: "delayed", the only choice here.
        trim: Maximum number of images that either part loses.
        side: Height and width of the images in pixels.

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
        require(0 <= self.trim < length, "trim", f"from 0 to below {length}, the images of a part", self.trim)
        require(1 <= self.side <= 84, "side", "from 1 to 84", self.side)

    @property
    def shape(self) -> tuple[int, int]:
        return 3, self.side

    @property
    def normalisations(self) -> tuple[Normalisation, ...]:
        return Omniglot.NORMALISATION, MiniImagenet.NORMALISATION

    def source(self, image: NDArray[np.uint8]) -> int:
        """Returns the data set whose normalisation fits an image: 0 (characters) for grey images, 1 (photographs) for
        colours.
        """
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
        return Batch(
            EpisodeInputs(*map(_interleave, whole.inputs, other.inputs)), _interleave(whole.targets, other.targets)
        )

    def _part(self, source: int, classes: Classes, random: np.random.Generator, n: int, first: bool) -> Batch:
        """An episode of one data set, without labels as inputs."""
        numbers, turns, labels = shuffled(draw(classes, random, n, self.ways, self.shots, first), random)
        shown = self.batch_of(classes, numbers, turns, np.zeros_like(labels), source)
        return Batch(shown, torch.from_numpy(labels + self.ways * source))

    def _joined(self, parts: Sequence[Batch]) -> Batch:
        """Concatenates episodes. The label inputs are the labels, one step later."""
        images, _, sources = (torch.cat(part, dim=1) for part in zip(*(part.inputs for part in parts), strict=True))
        targets = torch.cat([part.targets for part in parts], dim=1)
        none = targets.new_full((len(targets), 1), self.no_label)
        return Batch(EpisodeInputs(images, torch.cat([none, targets[:, :-1] % self.ways], dim=1), sources), targets)

    def instances(self, right: Tensor, targets: Tensor) -> Metrics:
        """Computes accuracies by order of the data sets: of each part, of the k-th images of a class, and of every time
        step.

        Args:
            right: Whether an output is correct, bool `[B, P]`.
            targets: Targets, int64 `[B, P]`.

        Returns:
            The mean of every accuracy, by detail.
        """
        metrics: Metrics = {}
        first = targets[:, 0] // self.ways
        for order, name in enumerate(NAMES):
            rows = first == order
            right_rows, sources = right[rows], targets[rows] // self.ways
            for source, part in enumerate(NAMES if len(right_rows) else ()):
                right_part, target_part = (
                    whole[sources == source].view(len(right_rows), -1) for whole in (right_rows, targets[rows])
                )
                counted = super().instances(right_part, target_part)
                group = f"{name}_first_{part}"
                metrics |= {Detail(group, instance.member): mean for instance, mean in counted.items()}
                metrics[Detail(group, "all")] = mean_of(right_part)
            metrics |= {
                Point(f"{name}_first", step): mean_of(right_rows[:, step]) for step in range(right_rows.shape[1])
            }
        return metrics


def _cut(part: Batch, end: int) -> Batch:
    return Batch(EpisodeInputs(*(tensor[:, :end] for tensor in part.inputs)), part.targets[:, :end])


def _interleave(one: Tensor, other: Tensor) -> Tensor:
    """Combines the even rows of `one` with the odd rows of `other`."""
    mixed_rows = one.clone()
    mixed_rows[1::2] = other[1::2]
    return mixed_rows
