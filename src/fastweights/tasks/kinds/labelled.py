"""Labelled sequences: batches for training, fixed sets for validation and test, a loss and metrics that add up."""

from abc import abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import count, islice
from math import log
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, one_hot

from fastweights.core.errors import require
from fastweights.core.metric import ACCURACY, Metric
from fastweights.tasks.kinds._random import ORDER, TEST, TRAINING, VALIDATION, random_stream
from fastweights.tasks.kinds.task import Task

IGNORE = -100
"""Target of a position that is not scored; the default `ignore_index` of torch's cross-entropy."""

AT_ONCE = 16
"""Number of training batches that are drawn together if all are new, since small draws cost mostly overhead."""

Kind = Literal["tokens", "pairs", "features", "images"]


class Padded(NamedTuple):
    """Variable-length sequences, padded at the end."""

    values: Tensor  # int64 [B, T] for tokens, float32 [B, T, input_size] for features
    lengths: Tensor  # int64 [B]


class Batch(NamedTuple):
    """Batch of sequences and targets.

    Targets are for the last P of the T time steps, so that a model computes no other outputs: P is 1 for classification
    and T for a prediction at every step. Variable-length sequences are padded at the end.

    Args:
        inputs: Inputs: int64 `[B, T]` for tokens, int64 `[B, T, 2]` for pairs of tokens, float32 `[B, T, input_size]`
            for features.
        targets: Targets, int64 `[B, P]`: a class, or `IGNORE`.
    """

    inputs: Any  # int64 [B, T] for tokens and [B, T, 2] for pairs of them, float32 [B, T, input_size] for features
    targets: Tensor  # int64 [B, P], a class or IGNORE


@dataclass(frozen=True)
class Mean:
    """Mean as a sum and a count, so that means of batches can be combined.

    Args:
        total: Sum of the values.
        count: Number of values.

    Example:
        >>> (Mean(3.0, 4) + Mean(2.0, 6)).value
        0.5
    """

    total: float
    count: int

    def __add__(self, other: "Mean") -> "Mean":
        return Mean(self.total + other.total, self.count + other.count)

    @property
    def value(self) -> float:
        """The mean; NaN if the count is 0."""
        return self.total / self.count if self.count else float("nan")


Metrics = dict[Any, Mean]
"""Means by the name of a metric; on test data also by `Detail` and by `Point` of a curve."""


def combine(parts: Iterable[Metrics]) -> Metrics:
    """Combines the metrics of batches. A batch may lack some metrics.

    Args:
        parts: Metrics of each batch.

    Returns:
        The metrics of all batches.
    """
    whole: Metrics = {}
    for part in parts:
        whole |= {name: whole.get(name, Mean(0.0, 0)) + mean for name, mean in part.items()}
    return whole


class Labelled(Task):
    """Base class of tasks with targets at the last time steps of a sequence.

    A model maps `Batch.inputs` to outputs `[B, P, output_size]` for the last P time steps. `loss` and `metrics` compare
    them with `Batch.targets`. Every metric is a mean, and `combine` combines the metrics of batches.
    """

    input_kind: ClassVar[Kind] = "tokens"
    main_metric: ClassVar[Metric] = ACCURACY

    @property
    def arguments(self) -> tuple[Any, ...]:
        return self.input_kind, self.input_size, self.output_size

    @property
    @abstractmethod
    def input_size(self) -> int:
        """Number of different tokens (or of keys, for pairs), or number of features."""

    @property
    @abstractmethod
    def output_size(self) -> int:
        """Number of classes."""

    @property
    @abstractmethod
    def chance(self) -> dict[str, float]:
        """Scores of `baseline_outputs`, by metric."""

    def baselines(self) -> dict[str, float]:
        """Scores of methods other than networks on the test set.

        Returns:
            The scores in the main metric, by name.
        """
        return {}

    @property
    def training_size(self) -> int | None:
        """Number of training sequences; None if every batch is new."""
        return None

    @property
    def majority_class(self) -> int:
        """The most frequent class."""
        return 0

    @abstractmethod
    def train_batches(self, batch_size: int, seed: int, start: int = 0) -> Iterator[Batch]:
        """Yields training batches without end.

        The batch of a training step does not depend on the start, so that a run can resume.

        Args:
            batch_size: Number of sequences B.
            seed: Seed of the training data.
            start: First training step.

        Yields:
            Batches.
        """

    @abstractmethod
    def validation(self, batch_size: int) -> Iterator[Batch]:
        """Yields the validation set, which is always the same.

        Args:
            batch_size: Number of sequences B. The last batch may be smaller.

        Yields:
            Batches.
        """

    @abstractmethod
    def test(self, batch_size: int) -> Iterator[Batch]:
        """Yields the test set, which is always the same.

        Args:
            batch_size: Number of sequences B. The last batch may be smaller.

        Yields:
            Batches.
        """

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Computes the mean loss over all scored positions: the cross-entropy in nats, unless a task overrides it.

        Args:
            outputs: Outputs of the model, `[B, P, output_size]`.
            targets: Targets, int64 `[B, P]`.

        Returns:
            The loss, a scalar.
        """
        return self._total_loss(outputs, targets) / (targets != IGNORE).sum()

    def metrics(self, outputs: Tensor, targets: Tensor) -> Metrics:
        """Computes the metrics of a batch: loss and accuracy, unless a task overrides them.

        Args:
            outputs: Outputs of the model, `[B, P, output_size]`.
            targets: Targets, int64 `[B, P]`.

        Returns:
            The mean of every metric, by name.
        """
        scored = targets != IGNORE
        n = int(scored.sum())
        right = int(((outputs.argmax(-1) == targets) & scored).sum())
        return {"loss": Mean(float(self._total_loss(outputs, targets)), n), "accuracy": Mean(float(right), n)}

    def details(self, outputs: Tensor, targets: Tensor) -> Metrics:
        """Computes the metrics of a test batch, with details and curves if the task has any.

        Args:
            outputs: Outputs of the model, `[B, P, output_size]`.
            targets: Targets, int64 `[B, P]`.

        Returns:
            The mean of every metric, by name, detail or point of a curve.
        """
        return self.metrics(outputs, targets)

    def summary(self, whole: Metrics) -> dict[Any, float]:
        """Computes numbers from combined metrics.

        Args:
            whole: Combined metrics.

        Returns:
            The numbers by name.
        """
        return {name: mean.value for name, mean in whole.items()}

    def perfect_outputs(self, targets: Tensor) -> Tensor:
        """Computes outputs with a perfect score.

        Args:
            targets: Targets, int64 `[B, P]`.

        Returns:
            The outputs `[B, P, output_size]`.
        """
        return 50.0 * self._one_hot(targets)

    def baseline_outputs(self, targets: Tensor) -> Tensor:
        """Computes outputs of a baseline that prefers the most frequent class slightly.

        Args:
            targets: Targets, int64 `[B, P]`.

        Returns:
            The outputs `[B, P, output_size]`.
        """
        outputs = torch.zeros(*targets.shape, self.output_size, device=targets.device)
        outputs[..., self.majority_class] = 1e-6
        return outputs

    def _total_loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        self._require_shape(outputs, targets)
        return cross_entropy(outputs.flatten(0, 1), targets.flatten(), ignore_index=IGNORE, reduction="sum")

    def _one_hot(self, targets: Tensor) -> Tensor:
        return one_hot(targets.clamp(min=0), self.output_size).float()

    def _require_shape(self, outputs: Tensor, targets: Tensor) -> None:
        shape = [*targets.shape, self.output_size]
        require(list(outputs.shape) == shape, "outputs", f"a tensor of shape {shape}", list(outputs.shape))

    @property
    def _uniform_loss(self) -> float:
        return log(self.output_size)


class FreshTask(Labelled):
    """A task whose training batches are all new, determined by a seed and the step.

    A subclass has the fields `evaluation_size` (sequences in the validation set, and in the test set) and `data_seed`
    (the seed of these two).
    """

    evaluation_size: int
    data_seed: int

    @abstractmethod
    def _draw(self, random: np.random.Generator, n: int) -> Batch:
        """Draws n sequences for training."""

    def _draw_for_evaluation(self, random: np.random.Generator, n: int) -> Batch:
        return self._draw(random, n)

    def __post_init__(self) -> None:
        require(self.evaluation_size >= 1, "evaluation_size", "at least 1", self.evaluation_size)
        require(self.data_seed >= 0, "data_seed", "at least 0", self.data_seed)

    def train_batches(self, batch_size: int, seed: int, start: int = 0) -> Iterator[Batch]:
        _require_batches(batch_size, seed, start)
        return self._train_batches(batch_size, seed, start)

    def _train_batches(self, batch_size: int, seed: int, start: int) -> Iterator[Batch]:
        first, position = divmod(start, AT_ONCE)
        for block in count(first):
            batches = self._draw(random_stream(seed, TRAINING, block), AT_ONCE * batch_size)
            yield from islice(_cut(batches, batch_size), position, None)
            position = 0

    def validation(self, batch_size: int) -> Iterator[Batch]:
        return _cut(self._validation, batch_size)

    def test(self, batch_size: int) -> Iterator[Batch]:
        return _cut(self._test, batch_size)

    @cached_property
    def _validation(self) -> Batch:
        return self._draw_for_evaluation(random_stream(self.data_seed, VALIDATION), self.evaluation_size)

    @cached_property
    def _test(self) -> Batch:
        return self._draw_for_evaluation(random_stream(self.data_seed, TEST), self.evaluation_size)


class Sets(NamedTuple):
    """The three sets of a task as they are stored: in small types, padded to one length."""

    train: Batch
    validation: Batch
    test: Batch


class FixedTask(Labelled):
    """A task with a fixed training set, which is shuffled every epoch."""

    @abstractmethod
    def _make_sets(self) -> Sets:
        """Builds or reads the three sets."""

    @cached_property
    def sets(self) -> Sets:
        """The three sets, built or read at the first access."""
        return self._make_sets()

    @property
    def training_size(self) -> int:
        return len(self.sets.train.targets)

    def train_batches(self, batch_size: int, seed: int, start: int = 0) -> Iterator[Batch]:
        """Endless batches from step `start` on: epochs of ceil(training_size / batch_size) steps each."""
        _require_batches(batch_size, seed, start)
        batches = shuffled(self.training_size, batch_size, seed, start)
        return (self._finish(Batch(*(part.index_select(0, chosen) for part in self.sets.train))) for chosen in batches)

    def validation(self, batch_size: int) -> Iterator[Batch]:
        return map(self._finish, _cut(self.sets.validation, batch_size))

    def test(self, batch_size: int) -> Iterator[Batch]:
        return map(self._finish, _cut(self.sets.test, batch_size))

    def _finish(self, batch: Batch) -> Batch:
        """Converts a stored batch for a model: int64, and no longer than its longest sequence."""
        if batch.targets.shape[1] == 1:
            return Batch(batch.inputs.long(), batch.targets.long())
        length = int((batch.targets != IGNORE).any(0).nonzero().max()) + 1
        return Batch(batch.inputs[:, :length].long(), batch.targets[:, :length].long())


def require_sizes(sizes: tuple[int, int, int]) -> None:
    """Raises unless all three sets have at least one sequence."""
    holds = len(sizes) == 3 and min(sizes) >= 1
    require(holds, "sizes", "three numbers, each at least 1, for train, validation and test", sizes)


def split_sets(batch: Batch, sizes: tuple[int, int, int]) -> Sets:
    """Splits sequences into training, validation and test set, in this order."""
    parts = zip(*(part.split(sizes) for part in batch), strict=True)
    return Sets(*(Batch(*part) for part in parts))


def _cut(batch: Batch, batch_size: int) -> Iterator[Batch]:
    require(batch_size >= 1, "batch_size", "at least 1", batch_size)
    return map(Batch, *(part.split(batch_size) for part in batch))


def shuffled(size: int, batch_size: int, seed: int, start: int) -> Iterator[Tensor]:
    """Endless batches of shuffled indices from step `start` on, in a new order every epoch."""
    first, position = divmod(start, -(-size // batch_size))
    for epoch in count(first):
        order = torch.from_numpy(random_stream(seed, ORDER, epoch).permutation(size))
        yield from order.split(batch_size)[position:]
        position = 0


def _require_batches(batch_size: int, seed: int, start: int) -> None:
    require(batch_size >= 1, "batch_size", "at least 1", batch_size)
    require(seed >= 0, "seed", "at least 0", seed)
    require(start >= 0, "start", "at least 0", start)
