"""Labelled variable-length sequences, and their encoding as numbers."""

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from fastweights.core.errors import require
from fastweights.registry import TOKENIZERS
from fastweights.tasks.kinds.labelled import Batch, Padded
from fastweights.tasks.sources.examples import Example, Value
from fastweights.tokenizers._tokenizer import Tokenizer

MOST = 200
"""Maximum length of the name of a class."""


class Sequences(NamedTuple):
    """Concatenated sequences, since millions of small tensors would need more memory than their values."""

    values: Tensor  # int32 [steps] for tokens, float32 [steps, D] for features
    lengths: Tensor  # int64 [N]
    labels: Tensor  # int64 [N]

    def batch(self, chosen: Sequence[int]) -> Batch:
        """Returns sequences as a batch, padded to the longest of them."""
        ends = self.lengths.cumsum(0)
        rows = [self.values[ends[n] - self.lengths[n] : ends[n]] for n in chosen]
        return Batch(padded(rows), self.labels[list(chosen)].unsqueeze(1))


def padded(rows: Sequence[Tensor]) -> Padded:
    """Pads sequences to one length."""
    values = pad_sequence(list(rows), batch_first=True)
    lengths = torch.tensor([len(row) for row in rows])
    return Padded(values if values.is_floating_point() else values.long(), lengths)


@dataclass(frozen=True)
class Encoding:
    """The encoding of examples as numbers.

    Args:
        classes: Names of the classes.
        majority_class: Class that most training sequences have.
        layout: Whether a table of the user is one sequence ("files") or has many ("table").
        tokenizer: Tokenizer of texts; None for features.
        moments: Mean and standard deviation of the features, `[2, D]`; None for texts.
    """

    classes: tuple[str, ...]
    majority_class: int
    layout: str
    tokenizer: Tokenizer | None
    moments: NDArray[np.float32] | None

    @staticmethod
    def learn(training: Sequence[Example], classes: tuple[str, ...], layout: str, tokenizer: Tokenizer) -> "Encoding":
        """Derives the encoding from training examples. The trained tokenizer is only used for texts."""
        counts = Counter(example.label for example in training)
        majority_class = max(range(len(classes)), key=lambda n: counts[classes[n]])
        if isinstance(training[0].value, str):
            return Encoding(classes, majority_class, layout, tokenizer, None)
        return Encoding(classes, majority_class, layout, None, _moments([example.value for example in training]))

    def facts(self, name: str) -> dict[str, Any]:
        """Numbers and strings that JSON can hold; `name` is that of the tokenizer."""
        facts = {"classes": list(self.classes), "majority_class": self.majority_class, "layout": self.layout}
        if self.tokenizer is not None:
            return {**facts, "tokenizer": name, "tokens": self.tokenizer.facts()}
        assert self.moments is not None
        return {**facts, "moments": self.moments.tolist()}

    @staticmethod
    def from_facts(facts: Mapping[str, Any]) -> "Encoding":
        """The encoding with these `facts()`; `InputError` if no encoding has them."""
        names, majority_class, layout = (facts.get(name) for name in ("classes", "majority_class", "layout"))
        valid = isinstance(names, list) and all(isinstance(name, str) for name in names)
        require(valid, "classes", "names", "something else", "Restore the file.")
        classes = require_classes(names or ())
        fits = type(majority_class) is int and 0 <= majority_class < len(classes) and layout in ("files", "table")
        require(fits, "majority_class and layout", "those of a classifier", "something else", "Restore the file.")
        assert isinstance(majority_class, int)
        assert isinstance(layout, str)
        if "moments" in facts:
            return Encoding(classes, majority_class, layout, None, _read_moments(facts["moments"]))
        tokenizer = TOKENIZERS.load(str(facts.get("tokenizer"))).from_facts(facts.get("tokens"))
        return Encoding(classes, majority_class, layout, tokenizer, None)

    @property
    def size(self) -> int:
        """Number of tokens or of features."""
        if self.tokenizer is not None:
            return len(self.tokenizer)
        assert self.moments is not None
        return self.moments.shape[1]

    def encode(self, value: Value) -> Tensor:
        """Tokens `[T]` of a text, or normalised features `[T, D]`."""
        if self.tokenizer is not None:
            require(isinstance(value, str), "data", "texts, as in training", "numbers")
            assert isinstance(value, str)
            return self.tokenizer.encode(value)
        assert self.moments is not None
        require(not isinstance(value, str), "data", "numbers, as in training", "a text")
        shape = list(np.shape(value))
        require(
            shape[1:] == [self.size], "data", f"sequences with {self.size} features per step, as in training", shape
        )
        mean, deviation = self.moments
        return torch.from_numpy(((value - mean) / deviation).astype(np.float32))

    def sequences(self, examples: Iterable[Example], max_length: int) -> Sequences:
        """Encodes labelled examples, cut to `max_length` steps; those without a step are skipped."""
        number = {name: index for index, name in enumerate(self.classes)}
        encoded = [(self.encode(e.value)[:max_length], number[e.label]) for e in examples if e.label is not None]
        rows, labels = zip(*[(row, label) for row, label in encoded if len(row)], strict=True)
        values = torch.cat(rows)
        lengths, targets = torch.tensor([len(row) for row in rows]), torch.tensor(labels)
        return Sequences(values if values.is_floating_point() else values.int(), lengths, targets)


def require_classes(names: Iterable[str]) -> tuple[str, ...]:
    """Sorts names of classes, numbers numerically; `InputError` unless there are two printable ones."""
    ordered = sorted(set(names), key=lambda name: (not name.isdecimal(), int(name) if name.isdecimal() else 0, name))
    got = ", ".join(ordered[:5]) or "none"
    require(
        len(ordered) >= 2, "data", "a data set with at least two classes", got, "A folder needs a sub-folder per class."
    )
    wrong = next((name for name in ordered if not (name.isprintable() and 1 <= len(name) <= MOST)), None)
    require(wrong is None, "class", f"a name of 1 to {MOST} printable characters", repr(wrong)[:80])
    return tuple(ordered)


def digest(examples: Iterable[Example]) -> str:
    """SHA-256 of examples and their classes."""
    sha256 = hashlib.sha256()
    for _, value, label in examples:
        content = value.encode() if isinstance(value, str) else value.tobytes()
        sha256.update(f"{label}\0{np.shape(value)}\0{len(content)}\0".encode() + content)
    return sha256.hexdigest()


def _moments(values: Sequence[Any]) -> NDArray[np.float32]:
    """Mean and standard deviation of all steps; 1 for features that are constant."""
    steps = np.concatenate(values).astype(np.float64)
    deviation = steps.std(0)
    return np.stack([steps.mean(0), np.where(deviation > 0, deviation, 1)]).astype(np.float32)


def _read_moments(stored: Any) -> NDArray[np.float32]:
    flat = isinstance(stored, list) and len(stored) == 2 and all(isinstance(row, list) for row in stored)
    fits = flat and len(stored[0]) == len(stored[1]) >= 1 and all(type(n) is float for row in stored for n in row)
    require(fits, "moments", "two rows of numbers", "something else", "Restore the file.")
    moments = np.array(stored, dtype=np.float32)
    positive = bool(np.isfinite(moments).all() and (moments[1] > 0).all())
    require(positive, "moments", "finite, with positive deviations", "others", "Restore the file.")
    return moments
