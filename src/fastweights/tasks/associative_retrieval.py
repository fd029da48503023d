"""Associative retrieval: one question about a string of letters and digits."""

from dataclasses import dataclass
from string import ascii_lowercase, digits

import numpy as np
import torch
from numpy.typing import NDArray

from fastweights.core.errors import require
from fastweights.tasks.kinds._random import TRAINING, random_stream
from fastweights.tasks.kinds.labelled import Batch, FixedTask, Sets, require_sizes, split_sets

VOCABULARY = ascii_lowercase + digits + "?"
"""Token n is character n."""


@dataclass(frozen=True)
class AssociativeRetrieval(FixedTask):
    """Associative retrieval: letters with digits, then one letter as the query.

    Input -> target: `c9k8j3f1??c` -> `9`, the digit that followed the queried letter.

    K pairs of a letter (all different) and a digit (drawn with replacement), two question marks, and one of the K
    letters, drawn uniformly: 2 K + 3 tokens. The answer is one of the ten digits.

    All sequences of the three sets are different. The paper does not require that; at K = 4 it hardly changes the
    distribution, and it makes the sets disjoint.

    Args:
        pairs: K. The paper does not state it; its examples have 4.
        sizes: Sequences for training, validation and test; the default is the paper's.
        data_seed: Seed of the three sets.

    Source: Ba, Hinton, Mnih, Leibo and Ionescu 2016, Sec. 4.1.
    """

    pairs: int = 4
    sizes: tuple[int, int, int] = (100_000, 10_000, 20_000)
    data_seed: int = 0

    def __post_init__(self) -> None:
        letters = len(ascii_lowercase)
        require(1 <= self.pairs <= letters, "pairs", f"from 1 to {letters}, the number of letters", self.pairs)
        require_sizes(self.sizes)
        require(self.data_seed >= 0, "data_seed", "at least 0", self.data_seed)
        # At half of all sequences, new ones are still found quickly by rejection sampling.
        longest, remedy = self._different // 2, "Use more pairs, or smaller sizes."
        require(sum(self.sizes) <= longest, "sizes", f"at most {longest} together", sum(self.sizes), remedy)

    @property
    def input_size(self) -> int:
        return len(VOCABULARY)

    @property
    def output_size(self) -> int:
        return len(digits)

    @property
    def chance(self) -> dict[str, float]:
        return {"loss": self._uniform_loss, "accuracy": 1 / len(digits)}

    @property
    def _different(self) -> int:
        """Number of different sequences: 26 25 ... (27 - K) orders of letters, 10^K digits, K questions."""
        letters = int(np.prod(np.arange(len(ascii_lowercase), 0, -1, dtype=object)[: self.pairs]))
        return letters * len(digits) ** self.pairs * self.pairs

    def _make_sets(self) -> Sets:
        random = random_stream(self.data_seed, TRAINING)
        tokens = np.empty((0, 2 * self.pairs + 3), np.uint8)
        while len(tokens) < sum(self.sizes):
            tokens = _first_of_each(np.concatenate([tokens, self._draw(random, sum(self.sizes))]))
        tokens = tokens[: sum(self.sizes)]
        return split_sets(Batch(torch.from_numpy(tokens), torch.from_numpy(_answers(tokens))), self.sizes)

    def _draw(self, random: np.random.Generator, n: int) -> NDArray[np.uint8]:
        letters = random.random((n, len(ascii_lowercase))).argsort(axis=1, kind="stable")[:, : self.pairs]
        values = random.integers(0, len(digits), (n, self.pairs)) + VOCABULARY.index("0")
        queries = np.take_along_axis(letters, random.integers(0, self.pairs, (n, 1)), axis=1)
        marks = np.full((n, 2), VOCABULARY.index("?"))
        return np.hstack([np.stack([letters, values], 2).reshape(n, -1), marks, queries]).astype(np.uint8)


def _first_of_each(rows: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Removes rows that occurred before, and keeps the order."""
    _, first = np.unique(np.ascontiguousarray(rows).view(f"V{rows.shape[1]}"), return_index=True)
    return rows[np.sort(first)]


def _answers(tokens: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """The digit after the letter of the question, `[n, 1]`."""
    position = 2 * (tokens[:, :-3:2] == tokens[:, -1:]).argmax(axis=1, keepdims=True) + 1
    return np.take_along_axis(tokens, position, axis=1) - np.uint8(VOCABULARY.index("0"))
