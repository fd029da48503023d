"""Episodes: pictures of new classes with their labels, and pictures to name."""

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
from fastweights.tasks.kinds._classes import QUARTER_TURNS, Classes, Integers, Normalisation, Plain, turned
from fastweights.tasks.kinds._draws import Drawn, below, draw, mixed, moved
from fastweights.tasks.kinds._episode_batches import Shown, ahead, recut
from fastweights.tasks.kinds._prototypes import prototype_loss
from fastweights.tasks.kinds._random import TEST, TRAINING, VALIDATION, random_stream
from fastweights.tasks.kinds.labelled import Batch, Kind, Labelled, Mean, Metrics, _require_batches

Labels = Literal["synchronous", "delayed"]
Unlabelled = Literal["published", "corrected"]
Evaluation = Literal["shuffled", "published"]

INSTANCES = (1, 2, 3, 5, 10)
"""Of the pictures of a class in an episode with delayed labels, those whose accuracy is told apart."""

CERTAINTY = 1.96
"""Standard deviations to either side of a mean that hold it with 95 %."""


@dataclass(frozen=True)
class Episodes(Labelled):
    """N-way K-shot episodes: N classes that are drawn anew, K pictures of each in mixed order, labelled 0 to N - 1.

    Args:
        ways: N.
        shots: K.
        labels: "synchronous": every picture comes with its label, and one more is to be named, P = 1. "delayed": every
            picture is to be named, P = T, and comes with the label of the one before it.
        unlabelled: What stands for no label: "published", the code of class 0, or "corrected", a code of its own.
        evaluation: Which pictures of a class are in validation and test: "shuffled" for any of them, "published" for
            always the first, as in the authors' code before June 2022.
        rotations: Whether training classes turned by 90, 180 and 270 degrees are classes of their own.
        shift: Pixels by which each training picture is moved at most, up or down and to a side; its edge is repeated.
        validation_size: Episodes for validation.
        test_size: Episodes for the test.
        data_seed: What these are drawn from.
        workers: Threads that draw training batches ahead; the batches do not depend on their number.
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

    input_kind: ClassVar[Kind] = "pictures"
    at_once: ClassVar[int] = 100
    """Episodes of a fixed set that are drawn from one stream of random numbers, so that batches can be cut anywhere."""

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
        """Channels of the pictures, and pixels of a side."""

    @abstractmethod
    def classes(self, split: int) -> tuple[Classes, ...]:
        """The classes of the training (0), the validation (1) or the test split (2), of each data set."""

    @property
    def normalisations(self) -> tuple[Normalisation, ...]:
        """How pixels are normalised, for each data set."""
        return (Normalisation(),)

    @property
    def arguments(self) -> tuple[Any, ...]:
        return *self.shape, self.ways, self.codes, [list(map(list, n)) for n in self.normalisations]

    @property
    def codes(self) -> int:
        """What a model may be told with a picture: the labels, and perhaps a code for none."""
        return self.ways + (self.unlabelled == "corrected")

    @property
    def no_label(self) -> int:
        """The code for none."""
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
        """Of always saying the same label: 1 of N."""
        return {"loss": self._uniform_loss, "accuracy": 1 / self.ways}

    def source(self, image: NDArray[np.uint8]) -> int:
        """The data set whose normalisation a picture `[channels, side, side]` of a user's own takes."""
        return 0

    def facts(self) -> dict[str, Any]:
        return {"pictures": [part.pictures.digest for part in self.classes(TRAINING)]}

    def plain(self, split: int = TRAINING) -> Plain:
        """The pictures of the training (0), the validation (1) or the test split (2) of the first data set."""
        return Plain(self.classes(split)[0])

    def train_batches(self, batch_size: int, seed: int, start: int = 0) -> Iterator[Batch]:
        """Endless batches from step `start` on, drawn ahead by `workers` threads."""
        _require_batches(batch_size, seed, start)
        classes = self._checked(TRAINING)
        return ahead(partial(self._training_batch, classes, batch_size, seed), start, self.workers)

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
        return recut(blocks, batch_size)

    def _checked(self, split: int) -> tuple[Classes, ...]:
        """The classes, of which there are enough, with enough pictures."""
        found = self.classes(split)
        if split == TRAINING and self.rotations:
            found = tuple(Classes(own.pictures, own.chosen, QUARTER_TURNS) for own in found)
        for classes in found:
            name = ("training", "validation", "test")[split]
            require(len(classes) >= self.ways, f"{name} split", f"of at least {self.ways} classes", len(classes))
            counts = np.diff(classes.pictures.starts)[classes.chosen]
            fewest = int(counts.argmin())
            needed = f"with at least {self.per_class} pictures for shots={self.shots}"
            require(counts[fewest] >= self.per_class, f"class {classes.names[fewest]!r}", needed, counts[fewest])
        return found

    @property
    def per_class(self) -> int:
        """Pictures of a class that an episode may need."""
        return self.shots + (self.labels == "synchronous")

    def _training_batch(self, classes: Sequence[Classes], batch_size: int, seed: int, step: int) -> Batch:
        """Episodes for training, whose pictures are moved."""
        random = random_stream(seed, TRAINING, step)
        batch = self._draw(classes, random, batch_size)
        return batch._replace(inputs=batch.inputs._replace(images=moved(batch.inputs.images, self.shift, random)))

    def _draw(self, classes: Sequence[Classes], random: np.random.Generator, n: int, split: int = TRAINING) -> Batch:
        (only,) = classes
        first = split != TRAINING and self.evaluation == "published"
        drawn = draw(only, random, n, self.ways, self.per_class, first)
        arranged = self._synchronous(drawn, random) if self.labels == "synchronous" else self._delayed(drawn, random)
        numbers, turns, told, targets = arranged
        return Batch(self.shown(only, numbers, turns, told), torch.from_numpy(targets))

    def _synchronous(self, drawn: Drawn, random: np.random.Generator) -> tuple[Integers, Integers, Integers, Integers]:
        """Pictures, turns, what is told, and targets: the examples in mixed order, then the one to name."""
        numbers, turns, labels = mixed(drawn._replace(numbers=drawn.numbers[:, :, : self.shots]), random)
        rows = np.arange(len(numbers))
        asked = below(random, np.full(len(numbers), self.ways))
        numbers = np.column_stack([numbers, drawn.numbers[rows, asked, self.shots]])
        turns = np.column_stack([turns, drawn.turns[rows, asked]])
        return numbers, turns, np.column_stack([labels, np.full_like(rows, self.no_label)]), asked[:, None]

    def _delayed(self, drawn: Drawn, random: np.random.Generator) -> tuple[Integers, Integers, Integers, Integers]:
        """Pictures, turns, what is told, and targets: each label is told a step after it was to be said."""
        numbers, turns, labels = mixed(drawn, random)
        told = np.column_stack([np.full(len(labels), self.no_label), labels[:, :-1]])
        return numbers, turns, told, labels

    def shown(self, classes: Classes, numbers: Integers, turns: Integers, told: Integers, source: int = 0) -> Shown:
        """Pictures by their numbers, turned, and what is told with each; grey ones are the same in all channels."""
        images = torch.from_numpy(turned(classes.pictures.images[numbers], turns))
        coloured = images.expand(-1, -1, self.shape[0], -1, -1)
        return Shown(coloured, torch.from_numpy(told), torch.full(told.shape, source))

    def loss(self, outputs: Any, targets: Tensor) -> Tensor:
        """The cross-entropy; where a network says features beside, theirs as well, by the weight that it gives."""
        if isinstance(outputs, Tensor):
            return super().loss(outputs, targets)
        # All pictures are asked for, or those before the last came with their labels.
        labels = targets if self.labels == "delayed" else torch.cat([outputs.told[:, :-1], targets], 1)
        own: Tensor = outputs.weight * prototype_loss(outputs.features, labels)
        return super().loss(outputs.outputs, targets) + own

    def metrics(self, outputs: Tensor, targets: Tensor) -> Metrics:
        """Loss and accuracy over all pictures that are to be named."""
        right = self.right(outputs, targets)
        total = self._total_loss(outputs, targets)
        return {"loss": Mean(float(total), right.numel()), "accuracy": mean_of(right)}

    def details(self, outputs: Tensor, targets: Tensor) -> Metrics:
        """More of test data: squares for the interval and, for delayed labels, the accuracy of the k-th picture of a
        class, as `Detail("instance", "1")`."""
        right = self.right(outputs, targets)
        squares = {"squares": mean_of(right.double().mean(1) ** 2)}
        return {**self.metrics(outputs, targets), **squares, **self.instances(right, targets)}

    def summary(self, whole: Metrics) -> dict[Any, float]:
        """With squares: `interval`, to either side of the accuracy with 95 %, over episodes and not over seeds."""
        told = super().summary({name: mean for name, mean in whole.items() if name != "squares"})
        if "squares" in whole:
            variance = max(whole["squares"].value - whole["accuracy"].value ** 2, 0.0)
            told["interval"] = CERTAINTY * sqrt(variance / whole["squares"].count)
        return told

    def right(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """bool `[B, P]`: whether the largest output is that of the label."""
        self._require_shape(outputs, targets)
        return outputs.argmax(-1) == targets % self.ways

    def instances(self, right: Tensor, targets: Tensor) -> Metrics:
        """The accuracy of the k-th picture of a class, where pictures come with delayed labels."""
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
    """Of each target `[B, P]`, how often it has come in its row up to there, from 1.

    >>> number_instances(torch.tensor([[3, 1, 3, 3]])).tolist()
    [[1, 1, 2, 3]]
    """
    seen = one_hot(targets).cumsum(1)
    return seen.gather(2, targets.unsqueeze(2)).squeeze(2)


def mean_of(values: Tensor) -> Mean:
    """The mean of numbers or truths."""
    return Mean(float(values.double().sum()), values.numel())
