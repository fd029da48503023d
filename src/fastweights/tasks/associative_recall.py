"""Multi-query associative recall: many questions in one sequence."""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from fastweights.core.errors import require
from fastweights.tasks.kinds.labelled import IGNORE, Batch, FreshTask

POWER = 0.01
"""Exponent a of the gaps, that of the authors' code."""
DISTRACTORS = 16
"""Number of different distractors."""


@dataclass(frozen=True)
class AssociativeRecall(FreshTask):
    """Associative recall: key-value pairs, then each key again.

    Input -> target: `k_1 v_1 ... k_n v_n`, then each `k_i` again at some later step -> `v_i` there.

    Keys are different tokens of 1 to N/2 - 1, values different tokens of N/2 to N - 1. Each key is asked once, 2 g
    steps after the pairs, where the n different gaps g are drawn one by one with probabilities proportional to
    (g + 1)^(a - 1), a = 0.01: most questions come early. All other steps have token 0.

    Two options make it harder. Some keys are written twice, and the last value counts. Distractors, which are 16
    further tokens, stand between the pairs.

    Training sequences are always new (our choice), whereas the authors draw 100,000 once.

    Args:
        vocab_size: N.
        length: T in training.
        pairs: n.
        rewritten: Number of keys that are written twice; the order of all pairs is then random.
        distractors: Number of distractors between the pairs, at random places.
        evaluation_length: T of the validation set and of the test set; 0 for `length`.
        evaluation_size: Sequences in the validation set and in the test set.
        data_seed: Seed of both sets.

    Source: Arora et al. 2024, Zoology; the defaults are its shortest setting. The options for rewritten keys and
    distractors are ours.
    """

    vocab_size: int = 8192
    length: int = 64
    pairs: int = 4
    rewritten: int = 0
    distractors: int = 0
    evaluation_length: int = 0
    evaluation_size: int = 3000
    data_seed: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        even = self.vocab_size >= 4 and self.vocab_size % 2 == 0
        require(even, "vocab_size", "an even number of at least 4", self.vocab_size)
        require(self.distractors >= 0, "distractors", "at least 0", self.distractors)
        most = min(self.vocab_size // 2 - 1, (self.length - self.distractors) // 4)
        remedy = "Each pair needs a different key and four steps: two to show it, two to query it."
        require(1 <= self.pairs <= most, "pairs", f"from 1 to {most}", self.pairs, remedy)
        room = (self.length - self.distractors) // 2 - 2 * self.pairs
        again = min(self.pairs, self.vocab_size // 2 - self.pairs, room)
        remedy = "Each of them is one of the pairs, and needs another value and two more steps."
        require(0 <= self.rewritten <= again, "rewritten", f"from 0 to {again}", self.rewritten, remedy)
        longer = self.evaluation_length == 0 or self.evaluation_length >= self.length
        require(longer, "evaluation_length", f"0, or at least length={self.length}", self.evaluation_length)

    @property
    def input_size(self) -> int:
        return self.vocab_size + (DISTRACTORS if self.distractors else 0)

    @property
    def output_size(self) -> int:
        return self.vocab_size

    @property
    def majority_class(self) -> int:
        """The class of any value, since all are equally likely."""
        return self.vocab_size - 1

    @property
    def chance(self) -> dict[str, float]:
        return {"loss": self._uniform_loss, "accuracy": 2 / self.vocab_size}

    def _draw(self, random: np.random.Generator, n: int) -> Batch:
        return self._sequences(random, n, self.length)

    def _draw_for_evaluation(self, random: np.random.Generator, n: int) -> Batch:
        return self._sequences(random, n, self.evaluation_length or self.length)

    def _sequences(self, random: np.random.Generator, n: int, length: int) -> Batch:
        half, writes = self.vocab_size // 2, self.pairs + self.rewritten
        keys = distinct(random, n, half - 1, self.pairs) + 1
        values = distinct(random, n, half, writes) + half
        begin = 2 * writes + self.distractors
        queries = begin + 2 * self._gaps(random, n, length - begin)
        inputs, targets = np.zeros((n, length), np.int64), np.full((n, length), IGNORE)
        written, last = self._written(random, keys, values)
        places = self._places(random, inputs)
        np.put_along_axis(inputs, places, written, axis=1)
        np.put_along_axis(inputs, places + 1, values, axis=1)
        np.put_along_axis(inputs, queries, keys, axis=1)
        np.put_along_axis(targets, queries, last, axis=1)
        return Batch(torch.from_numpy(inputs), torch.from_numpy(targets))

    def _written(
        self, random: np.random.Generator, keys: NDArray[np.int64], values: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The key of every pair in order, and the last value of every key."""
        if not self.rewritten:
            return keys, values
        written = random.permuted(np.hstack([keys, keys[:, : self.rewritten]]), axis=1)
        is_key = written[:, None, ::-1] == keys[:, :, None]
        return written, np.take_along_axis(values, values.shape[1] - 1 - is_key.argmax(axis=2), axis=1)

    def _places(self, random: np.random.Generator, inputs: NDArray[np.int64]) -> NDArray[np.int64]:
        """The step of the key of every pair. Distractors are put into the inputs between the pairs."""
        n, writes = len(inputs), self.pairs + self.rewritten
        if not self.distractors:
            return np.tile(2 * np.arange(writes), (n, 1))
        is_pair = np.broadcast_to(np.arange(writes + self.distractors) < writes, (n, writes + self.distractors))
        is_pair = random.permuted(is_pair, axis=1)
        begins = np.cumsum(1 + is_pair, axis=1) - 1 - is_pair
        noise = random.integers(self.vocab_size, self.input_size, (n, self.distractors))
        np.put_along_axis(inputs, begins[~is_pair].reshape(n, -1), noise, axis=1)
        return begins[is_pair].reshape(n, -1)

    def _gaps(self, random: np.random.Generator, n: int, steps: int) -> NDArray[np.int64]:
        """Gaps `[n, pairs]`, drawn without replacement through exponential random variables."""
        number = steps // 2
        rates = np.arange(1, number + 1) ** (POWER - 1)
        return (random.exponential(size=(n, number)) / rates).argsort(axis=1, kind="stable")[:, : self.pairs]


def distinct(random: np.random.Generator, n: int, below: int, size: int) -> NDArray[np.int64]:
    """Different numbers below `below` in every row, `[n, size]`, in random order (Floyd's algorithm)."""
    chosen = np.full((n, size), -1)
    for column, top in enumerate(range(below - size, below)):
        drawn = random.integers(0, top + 1, (n, 1))
        is_taken = (chosen == drawn).any(axis=1)
        chosen[:, column] = np.where(is_taken, top, drawn[:, 0])
    return random.permuted(chosen, axis=1)
