"""Labelled sequences of the user."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from fastweights.core.errors import require, require_name
from fastweights.core.measurements import Detail
from fastweights.registry import TOKENIZERS
from fastweights.tasks.kinds._random import ORDER, random_stream
from fastweights.tasks.kinds.labelled import Batch, Kind, Labelled, Mean, Metrics, Padded, _require_batches, shuffled
from fastweights.tasks.sources.data_files import MissingFile
from fastweights.tasks.sources.examples import Example, Value, read_examples
from fastweights.tasks.sources.sequences import Encoding, Sequences, digest, padded, require_classes

HELD_OUT = 10
"""One sequence in this number, per class, is for validation, and one for the test."""
SPLITS = {"train", "training", "validation", "val", "valid", "dev", "test"}
MOST_CLASSES = 20
"""Classes whose recalls are reported one by one."""

Examples = list[Example]


class ExampleSets(NamedTuple):
    """Examples by their use."""

    training: Examples
    validation: Examples
    test: Examples


@dataclass(frozen=True)
class SequenceFiles(Labelled):
    """Classification of sequences from files of the user.

    Input -> target: `x_1, x_2, ..., x_T` -> the class of the sequence: a text, or time steps of numbers.

    A tenth of each class is for validation and a tenth for the test, drawn at random, unless they have files of their
    own. Features are normalised by the mean and the standard deviation of all training steps.

    Files: a folder with one sub-folder per class, or an archive of such a folder. It has .txt texts, or .csv, .tsv or
    .npy arrays with one row per time step. A CSV or TSV table with a column `label`, or a .npz file with arrays `x`,
    `y` and optionally `lengths`, also works.

    Args:
        data: File or folder.
        validation_data: The same for validation; empty for a part of `data`.
        test_data: The same for the test; empty for a part of `data`.
        tokenizer: Tokenizer of texts, from `fastweights list tokenizers`. It learns from training texts alone, except
            for "characters", which must know all.
        max_length: Number of steps that longer sequences are cut to.
        data_seed: Seed of the draw.

    Source: the layout of folders is that of Maas et al. 2011.
    """

    data: str = ""
    validation_data: str = ""
    test_data: str = ""
    tokenizer: str = "bytes"
    max_length: int = 1000
    data_seed: int = 0

    def __post_init__(self) -> None:
        require_name("tokenizer", self.tokenizer, TOKENIZERS.names())
        require(self.max_length >= 1, "max_length", "at least 1", self.max_length)
        require(self.data_seed >= 0, "data_seed", "at least 0", self.data_seed)

    @property
    def input_kind(self) -> Kind:  # type: ignore[override]
        return "features" if self.encoding.tokenizer is None else "tokens"

    @property
    def input_size(self) -> int:
        return self.encoding.size

    @property
    def output_size(self) -> int:
        return len(self.encoding.classes)

    @property
    def majority_class(self) -> int:
        return self.encoding.majority_class

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of the classes."""
        return self.encoding.classes

    @property
    def chance(self) -> dict[str, float]:
        """Accuracy of the most frequent class of the training set."""
        right = (self.sets[2].labels == self.majority_class).double().mean()
        return {"loss": self._uniform_loss, "accuracy": float(right)}

    @property
    def training_size(self) -> int:
        return len(self.sets[0].labels)

    @property
    def summary_line(self) -> str:
        sizes = "{:,}, {:,} and {:,} sequences for training, validation and the test".format(
            *(len(part.labels) for part in self.sets)
        )
        share = float((self.sets[0].labels == self.majority_class).double().mean())
        classes = f"{self.output_size} classes, of which {self.classes[self.majority_class]!r} has {100 * share:.0f} %"
        cut = sum(int((part.lengths == self.max_length).sum()) for part in self.sets)
        return f"{sizes}; {classes}{f'; {cut:,} end after {self.max_length:,} steps (--max-length)' if cut else ''}"

    @cached_property
    def encoding(self) -> Encoding:
        """The encoding of examples as numbers, learnt from the training set."""
        training = self._parts.training
        classes = require_classes(str(example.label) for example in training)
        self._require_known(classes)
        is_table = Path(self.data).suffix.lower() in (".csv", ".tsv", ".npz") and not Path(self.data).is_dir()
        read = [*training, *(self._held_out if self.tokenizer == "characters" else ())]
        texts = "\n".join(example.value for example in read if isinstance(example.value, str))
        tokenizer = TOKENIZERS.load(self.tokenizer).learn(texts)
        return Encoding.learn(training, classes, "table" if is_table else "files", tokenizer)

    @cached_property
    def sets(self) -> tuple[Sequences, Sequences, Sequences]:
        """Training, validation and test set."""
        training, validation, test = (self.encoding.sequences(part, self.max_length) for part in self._parts)
        return training, validation, test

    def facts(self) -> dict[str, Any]:
        sha256 = {name: digest(part) for name, part in self._parts._asdict().items()}
        return {**self.encoding.facts(self.tokenizer), "sha256": sha256}

    def restored_from(self, facts: Mapping[str, Any]) -> "SequenceFiles":
        known = replace(self)
        vars(known)["encoding"] = Encoding.from_facts(facts)
        return known

    def batch(self, values: Sequence[Value]) -> Padded:
        """Converts sequences to inputs of a model.

        Args:
            values: Texts, or arrays `[T, D]`.

        Returns:
            The padded sequences, with their lengths.
        """
        rows = [self.encoding.encode(value)[: self.max_length] for value in values]
        require(all(len(row) for row in rows), "data", "sequences with at least one step", "none")
        return padded(rows)

    def read(self, path: Path) -> Examples:
        """Reads sequences from a file or a folder, in a format of the training data. They need no labels.

        Args:
            path: File or folder.

        Returns:
            The sequences, with labels if they have any.
        """
        return read_examples(path, self.encoding.layout)

    def train_batches(self, batch_size: int, seed: int, start: int = 0) -> Iterator[Batch]:
        """Yields training batches without end, in a new order every epoch."""
        _require_batches(batch_size, seed, start)
        batches = shuffled(self.training_size, batch_size, seed, start)
        return (self.sets[0].batch(chosen.tolist()) for chosen in batches)

    def validation(self, batch_size: int) -> Iterator[Batch]:
        return _in_order(self.sets[1], batch_size)

    def test(self, batch_size: int) -> Iterator[Batch]:
        return _in_order(self.sets[2], batch_size)

    def details(self, outputs: Tensor, targets: Tensor) -> Metrics:
        """Computes the metrics of a test batch, and the recall of each class."""
        right = outputs.argmax(-1) == targets
        masks = {number: targets == number for number in targets.unique().tolist()}
        recalls = {
            Detail("recall of", self.classes[n]): Mean(float(right[of].sum()), int(of.sum())) for n, of in masks.items()
        }
        return {**self.metrics(outputs, targets), **recalls}

    def summary(self, whole: Metrics) -> dict[Any, float]:
        """Computes numbers from combined metrics, with the mean recall over classes."""
        results = super().summary(whole)
        names = [Detail("recall of", name) for name in self.classes]
        recalls = {name: results.pop(name) for name in names if name in results}
        if recalls:
            results["balanced_accuracy"] = sum(recalls.values()) / len(recalls)
        return {**results, **(recalls if len(recalls) <= MOST_CLASSES else {})}

    @property
    def _held_out(self) -> Examples:
        return [*self._parts.validation, *self._parts.test]

    def _require_known(self, classes: tuple[str, ...]) -> None:
        splits = all(name.lower() in SPLITS for name in classes)
        first = max(classes, key=lambda name: name.lower().startswith("train"))
        remedy = f"Say --data {self.data}/{first}, and the others with --validation-data and --test-data."
        require(not splits, "data", "a folder with a sub-folder per class", ", ".join(classes), remedy)
        unknown = next((example for example in self._held_out if example.label not in classes), None)
        got = f"{unknown.label!r} of {unknown.name}" if unknown else ""
        require(unknown is None, "class", "one of the training data", got)

    @cached_property
    def _parts(self) -> ExampleSets:
        """The examples of each set."""
        if not self.data:
            raise MissingFile("data must be a folder or a file, got none. Say data=PATH.")
        training = _labelled(self.data)
        from_files = {name: _labelled(path) for name, path in self._files.items() if path}
        drawn = [name for name in self._files if name not in from_files]
        training, *others = _draw(training, len(drawn), self.data_seed)
        return ExampleSets(training, **{**from_files, **dict(zip(drawn, others, strict=True))})

    @property
    def _files(self) -> dict[str, str]:
        return {"validation": self.validation_data, "test": self.test_data}


def _labelled(path: str) -> Examples:
    examples = [example for example in read_examples(Path(path)) if example.label is not None]
    remedy = "A folder needs a sub-folder per class, a table a column label, a .npz file an array y."
    require(bool(examples), "data", "labelled sequences", f"{path} without labels", remedy)
    return examples


def _draw(examples: Examples, parts: int, seed: int) -> list[Examples]:
    """The remaining examples, and `parts` random subsets with a tenth of each class, at least one of three."""
    positions: dict[str | None, list[int]] = {}
    for position, example in enumerate(examples):
        positions.setdefault(example.label, []).append(position)
    part_of = [0] * len(examples)
    for number, members in enumerate(positions.values()):
        order = random_stream(seed, ORDER, number).permutation(len(members)).tolist()
        share = max(round(len(members) / HELD_OUT), int(len(members) > parts))
        for rank, n in enumerate(order[: parts * share]):
            part_of[members[n]] = rank // share + 1
    subsets = [[e for e, part in zip(examples, part_of, strict=True) if part == n] for n in range(parts + 1)]
    most = max(Counter(example.label for example in examples).values())
    remedy = "Give more sequences, or files for validation and the test."
    require(all(subsets), "data", f"a data set with at least {parts + 1} sequences of one class", most, remedy)
    return subsets


def _in_order(sequences: Sequences, batch_size: int) -> Iterator[Batch]:
    require(batch_size >= 1, "batch_size", "at least 1", batch_size)
    return map(sequences.batch, (chosen.tolist() for chosen in torch.arange(len(sequences.labels)).split(batch_size)))
