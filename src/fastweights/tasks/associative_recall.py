"""Multi-query associative recall: many questions in one sequence."""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from fastweights.core.errors import require
from fastweights.tasks.kinds.labelled import IGNORE, Batch, FreshTask

POWER = 0.01
"""Exponent a of the gaps, that of the authors' code."""


@dataclass(frozen=True)
class AssociativeRecall(FreshTask):
    """Associative recall: key-value pairs, then each key again.

    Input -> target: `k_1 v_1 ... k_n v_n`, then each `k_i` again at some later step -> `v_i` there.

    Keys are different tokens of 1 to N/2 - 1, values different tokens of N/2 to N - 1. Each key is asked once, at step
    2 n + 2 g, where the n different gaps g are drawn one by one with probabilities proportional to (g + 1)^(a - 1),
    a = 0.01: most questions come early. All other steps have token 0.

    Training sequences are always new (our choice), whereas the authors draw 100,000 once.

    Args:
        vocab_size: N.
        length: T.
        pairs: n.
        evaluation_size: Sequences in the validation set and in the test set.
        data_seed: Seed of both sets.

    Source: Arora et al. 2024, Zoology; the defaults are its shortest setting.
    """

    vocab_size: int = 8192
    length: int = 64
    pairs: int = 4
    evaluation_size: int = 3000
    data_seed: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        even = self.vocab_size >= 4 and self.vocab_size % 2 == 0
        require(even, "vocab_size", "an even number of at least 4", self.vocab_size)
        most = min(self.vocab_size // 2 - 1, self.length // 4)
        remedy = "Each pair needs a different key and four steps: two to show it, two to query it."
        require(1 <= self.pairs <= most, "pairs", f"from 1 to {most}", self.pairs, remedy)

    @property
    def input_size(self) -> int:
        return self.vocab_size

    @property
    def output_size(self) -> int:
        return self.vocab_size

    @property
    def commonest(self) -> int:
        """The class of any value, since all are equally likely."""
        return self.vocab_size - 1

    @property
    def chance(self) -> dict[str, float]:
        return {"loss": self._uniform_loss, "accuracy": 2 / self.vocab_size}

    def _draw(self, random: np.random.Generator, n: int) -> Batch:
        half, length = self.vocab_size // 2, 2 * self.pairs
        keys = _distinct(random, n, half - 1, self.pairs) + 1
        values = _distinct(random, n, half, self.pairs) + half
        queries = length + 2 * self._gaps(random, n)
        inputs, targets = np.zeros((n, self.length), np.int64), np.full((n, self.length), IGNORE)
        inputs[:, 0:length:2], inputs[:, 1:length:2] = keys, values
        np.put_along_axis(inputs, queries, keys, axis=1)
        np.put_along_axis(targets, queries, values, axis=1)
        return Batch(torch.from_numpy(inputs), torch.from_numpy(targets))

    def _gaps(self, random: np.random.Generator, n: int) -> NDArray[np.int64]:
        """Gaps `[n, pairs]`, drawn without replacement through exponential random variables."""
        number = (self.length - 2 * self.pairs) // 2
        rates = np.arange(1, number + 1) ** (POWER - 1)
        return (random.exponential(size=(n, number)) / rates).argsort(axis=1, kind="stable")[:, : self.pairs]


def _distinct(random: np.random.Generator, n: int, below: int, size: int) -> NDArray[np.int64]:
    """Different numbers below `below` in every row, `[n, size]`, in random order (Floyd's algorithm)."""
    chosen = np.full((n, size), -1)
    for column, top in enumerate(range(below - size, below)):
        drawn = random.integers(0, top + 1, (n, 1))
        is_taken = (chosen == drawn).any(axis=1)
        chosen[:, column] = np.where(is_taken, top, drawn[:, 0])
    return random.permuted(chosen, axis=1)
