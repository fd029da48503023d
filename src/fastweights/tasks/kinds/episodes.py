"""Few-shot episodes: labelled images of new classes (support set), and images to classify (query set)."""

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from math import sqrt
from typing import Any, ClassVar, Literal, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import cross_entropy, one_hot

from fastweights.core.errors import require, require_name
from fastweights.core.measurements import Detail
from fastweights.tasks.kinds._classes import QUARTER_TURNS, Classes, Integers, Normalisation, PlainImages, rotated
from fastweights.tasks.kinds._draws import EpisodeIndices, below, draw, shifted, shuffled
from fastweights.tasks.kinds._episode_batches import EpisodeInputs, prefetched, rebatched
from fastweights.tasks.kinds._prototypes import prototype_loss
from fastweights.tasks.kinds._random import TEST, TRAINING, VALIDATION, random_stream
from fastweights.tasks.kinds.labelled import Batch, Kind, Labelled, Mean, Metrics, _require_batches

Labels = Literal["synchronous", "delayed"]
Unlabelled = Literal["published", "corrected"]
Evaluation = Literal["shuffled", "published"]

INSTANCES = (1, 2, 3, 5, 10)
"""Instances of a class, in an episode with delayed labels, whose accuracy is reported separately."""

CERTAINTY = 1.96
"""Half-width of a 95 % confidence interval in standard deviations."""


@dataclass(frozen=True)
class Episodes(Labelled):
    """Base class of few-shot tasks: episodes of N new classes with K images each.

    The images of an episode are in random order, labelled 0 to N - 1.

    Args:
        ways: Number N of classes per episode.
        shots: Number K of labelled images per class.
        labels: "synchronous": every image comes with its label, and one more is the query, P = 1. "delayed": every
            image is a query, P = T, and comes with the label of the previous image.
        unlabelled: Code for no label: "published", the code of class 0, or "corrected", a separate code.
        evaluation: Images of a class in validation and test: "shuffled" for any of them, "published" for always the
            first, as in the authors' code before June 2022.
        rotations: Whether training classes rotated by 90, 180 and 270 degrees are additional classes.
        shift: Maximum shift of each training image in pixels, per axis. The edge is repeated.
        validation_size: Number of episodes for validation.
        test_size: Number of episodes for the test.
        data_seed: Seed of the episodes for validation and test.
        workers: Number of threads that prefetch training batches. The batches do not depend on it.
    """

    ways: int = 5
    shots: int = 1
    labels: Labels = "synchronous"
    unlabelled: Unlabelled = "published"
    evaluation: Evaluation = "shuffled"
    rotations: bool = False
    shift: int = 0
    validation_size: int = 1000
    test_size: int = 10_000
    data_seed: int = 0
    workers: int = 1

    input_kind: ClassVar[Kind] = "images"
    at_once: ClassVar[int] = 100
    """Number of episodes of a fixed set per random stream, so that any batch size gives the same episodes."""

    def __post_init__(self) -> None:
        require(self.ways >= 2, "ways", "at least 2", self.ways)
        for name in ("shots", "validation_size", "test_size"):
            require(getattr(self, name) >= 1, name, "at least 1", getattr(self, name))
        for name in ("shift", "data_seed", "workers"):
            require(getattr(self, name) >= 0, name, "at least 0", getattr(self, name))
        for name, known in {"labels": Labels, "unlabelled": Unlabelled, "evaluation": Evaluation}.items():
            require_name(name, getattr(self, name), get_args(known))

    @property
    @abstractmethod
    def shape(self) -> tuple[int, int]:
        """Number of channels of the images, and their side in pixels."""

    @abstractmethod
    def classes(self, split: int) -> tuple[Classes, ...]:
        """Returns the classes of a split.

        Args:
            split: Training (0), validation (1) or test (2).

        Returns:
            The classes of each data set.
        """

    @property
    def normalisations(self) -> tuple[Normalisation, ...]:
        """Normalisation of pixels, for each data set."""
        return (Normalisation(),)

    @property
    def arguments(self) -> tuple[Any, ...]:
        return *self.shape, self.ways, self.codes, [list(map(list, n)) for n in self.normalisations]

    @property
    def codes(self) -> int:
        """Number of label codes: the labels, and the code for no label if it is separate."""
        return self.ways + (self.unlabelled == "corrected")

    @property
    def no_label(self) -> int:
        """The code for no label."""
        return self.codes - 1 if self.unlabelled == "corrected" else 0

    @property
    def input_size(self) -> int:
        channels, side = self.shape
        return channels * side**2

    @property
    def output_size(self) -> int:
        return self.ways

    @property
    def chance(self) -> dict[str, float]:
        """Scores of a constant label, 1 of N."""
        return {"loss": self._uniform_loss, "accuracy": 1 / self.ways}

    def source(self, image: NDArray[np.uint8]) -> int:
        """Returns the data set whose normalisation fits an image.

        Args:
            image: Image, uint8 `[channels, side, side]`.

        Returns:
            The index of the data set.
        """
        return 0

    def facts(self) -> dict[str, Any]:
        return {"images": [part.image_set.digest for part in self.classes(TRAINING)]}

    def plain_images(self, split: int = TRAINING) -> PlainImages:
        """Images of the training (0), the validation (1) or the test split (2) of the first data set."""
        return PlainImages(self.classes(split)[0])

    def train_batches(self, batch_size: int, seed: int, start: int = 0) -> Iterator[Batch]:
        """Endless batches from step `start` on, prefetched by `workers` threads."""
        _require_batches(batch_size, seed, start)
        classes = self._checked(TRAINING)
        return prefetched(partial(self._training_batch, classes, batch_size, seed), start, self.workers)

    def validation(self, batch_size: int) -> Iterator[Batch]:
        return self._fixed(VALIDATION, self.validation_size, batch_size)

    def test(self, batch_size: int) -> Iterator[Batch]:
        return self._fixed(TEST, self.test_size, batch_size)

    def _fixed(self, split: int, size: int, batch_size: int) -> Iterator[Batch]:
        require(batch_size >= 1, "batch_size", "at least 1", batch_size)
        classes = self._checked(split)

        def block(n: int) -> Batch:
            random = random_stream(self.data_seed, split, n)
            return self._draw(classes, random, min(self.at_once, size - n * self.at_once), split)

        blocks = (block(n) for n in range(-(-size // self.at_once)))
        return rebatched(blocks, batch_size)

    def _checked(self, split: int) -> tuple[Classes, ...]:
        """The classes of a split, checked for their number and for enough images."""
        data_sets = self.classes(split)
        if split == TRAINING and self.rotations:
            data_sets = tuple(Classes(part.image_set, part.chosen, QUARTER_TURNS) for part in data_sets)
        for classes in data_sets:
            name = ("training", "validation", "test")[split]
            require(
                len(classes) >= self.ways, f"{name} split", f"a split with at least {self.ways} classes", len(classes)
            )
            counts = np.diff(classes.image_set.starts)[classes.chosen]
            fewest = int(counts.argmin())
            needed = f"a class with at least {self.per_class} images for shots={self.shots}"
            require(counts[fewest] >= self.per_class, f"class {classes.names[fewest]!r}", needed, counts[fewest])
        return data_sets

    @property
    def per_class(self) -> int:
        """Number of images per class that an episode needs."""
        return self.shots + (self.labels == "synchronous")

    def _training_batch(self, classes: Sequence[Classes], batch_size: int, seed: int, step: int) -> Batch:
        """Training episodes, with shifted images."""
        random = random_stream(seed, TRAINING, step)
        batch = self._draw(classes, random, batch_size)
        return batch._replace(inputs=batch.inputs._replace(images=shifted(batch.inputs.images, self.shift, random)))

    def _draw(self, classes: Sequence[Classes], random: np.random.Generator, n: int, split: int = TRAINING) -> Batch:
        (only,) = classes
        first = split != TRAINING and self.evaluation == "published"
        drawn = draw(only, random, n, self.ways, self.per_class, first)
        arranged = self._synchronous(drawn, random) if self.labels == "synchronous" else self._delayed(drawn, random)
        numbers, turns, labels, targets = arranged
        return Batch(self.batch_of(only, numbers, turns, labels), torch.from_numpy(targets))

    def _synchronous(
        self, drawn: EpisodeIndices, random: np.random.Generator
    ) -> tuple[Integers, Integers, Integers, Integers]:
        """Images, turns, label codes and targets: the support set in random order, then the query."""
        numbers, turns, labels = shuffled(drawn._replace(numbers=drawn.numbers[:, :, : self.shots]), random)
        rows = np.arange(len(numbers))
        query = below(random, np.full(len(numbers), self.ways))
        numbers = np.column_stack([numbers, drawn.numbers[rows, query, self.shots]])
        turns = np.column_stack([turns, drawn.turns[rows, query]])
        return numbers, turns, np.column_stack([labels, np.full_like(rows, self.no_label)]), query[:, None]

    def _delayed(
        self, drawn: EpisodeIndices, random: np.random.Generator
    ) -> tuple[Integers, Integers, Integers, Integers]:
        """Images, turns, label codes and targets: each label comes one step after its image."""
        numbers, turns, labels = shuffled(drawn, random)
        codes = np.column_stack([np.full(len(labels), self.no_label), labels[:, :-1]])
        return numbers, turns, codes, labels

    def batch_of(
        self, classes: Classes, numbers: Integers, turns: Integers, labels: Integers, source: int = 0
    ) -> EpisodeInputs:
        """Images by index, rotated, with their label codes; grey images are repeated over the channels."""
        images = torch.from_numpy(rotated(classes.image_set.images[numbers], turns))
        coloured = images.expand(-1, -1, self.shape[0], -1, -1)
        return EpisodeInputs(coloured, torch.from_numpy(labels), torch.full(labels.shape, source))

    def loss(self, outputs: Any, targets: Tensor) -> Tensor:
        """The cross-entropy, plus the weighted loss of the vision encoder if the network also returns features."""
        if isinstance(outputs, Tensor):
            return super().loss(outputs, targets)
        # Either every image is a query, or all but the last came with their labels.
        labels = targets if self.labels == "delayed" else torch.cat([outputs.labels[:, :-1], targets], 1)
        vision_loss: Tensor = outputs.weight * prototype_loss(outputs.features, labels)
        return super().loss(outputs.outputs, targets) + vision_loss

    def metrics(self, outputs: Tensor, targets: Tensor) -> Metrics:
        """Loss and accuracy over all queries."""
        right = self.is_correct(outputs, targets)
        total = self._total_loss(outputs, targets)
        return {"loss": Mean(float(total), right.numel()), "accuracy": mean_of(right)}

    def details(self, outputs: Tensor, targets: Tensor) -> Metrics:
        """Metrics of test data, with squares for the interval and, for delayed labels, the accuracy of the k-th image
        of a class, as `Detail("instance", "1")`."""
        right = self.is_correct(outputs, targets)
        squares = {"squares": mean_of(right.double().mean(1) ** 2)}
        return {**self.metrics(outputs, targets), **squares, **self.instances(right, targets)}

    def summary(self, whole: Metrics) -> dict[Any, float]:
        """With squares: `interval`, the half-width of the 95 % interval of the accuracy over episodes."""
        results = super().summary({name: mean for name, mean in whole.items() if name != "squares"})
        if "squares" in whole:
            variance = max(whole["squares"].value - whole["accuracy"].value ** 2, 0.0)
            results["interval"] = CERTAINTY * sqrt(variance / whole["squares"].count)
        return results

    def is_correct(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Whether the largest output is that of the label, bool `[B, P]`."""
        self._require_shape(outputs, targets)
        return outputs.argmax(-1) == targets % self.ways

    def instances(self, right: Tensor, targets: Tensor) -> Metrics:
        """The accuracy of the k-th image of a class, for delayed labels."""
        if self.labels == "synchronous":
            return {}
        instances = number_instances(targets)
        return {Detail("instance", str(k)): mean_of(right[instances == k]) for k in INSTANCES if k <= self.shots}

    def _total_loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        self._require_shape(outputs, targets)
        return cross_entropy(outputs.flatten(0, 1), (targets % self.ways).flatten(), reduction="sum")

    def _one_hot(self, targets: Tensor) -> Tensor:
        return one_hot(targets % self.ways, self.ways).float()


def number_instances(targets: Tensor) -> Tensor:
    """The number of occurrences of each target `[B, P]` in its row so far, from 1.

    >>> number_instances(torch.tensor([[3, 1, 3, 3]])).tolist()
    [[1, 1, 2, 3]]
    """
    counts = one_hot(targets).cumsum(1)
    return counts.gather(2, targets.unsqueeze(2)).squeeze(2)


def mean_of(values: Tensor) -> Mean:
    """The mean of numbers or bools."""
    return Mean(float(values.double().sum()), values.numel())
