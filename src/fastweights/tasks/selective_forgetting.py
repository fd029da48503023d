"""Selective forgetting: associations that a marker makes void."""

from dataclasses import dataclass

import numpy as np
import torch

from fastweights.core.errors import require
from fastweights.tasks.associative_recall import distinct
from fastweights.tasks.kinds.labelled import Batch, FreshTask

NOTHING, MARKER = 0, 1
"""The answer for a void key, and the token that makes all keys so far void."""


@dataclass(frozen=True)
class SelectiveForgetting(FreshTask):
    """Selective forgetting: associative recall with markers that cancel earlier pairs.

    Input -> target: `k_1 v_1 ... k_n v_n` with markers between pairs, then all keys -> `v_i` if no marker followed it,
    else 0.

    A sequence has 1 to M markers, each between two pairs at random. Only the pairs behind the last marker count. Keys
    are different tokens of 2 to N/2 - 1, values different tokens of N/2 to N - 1. Every key is asked once, in random
    order, and the answer is due at the same step. Places of missing markers have token 0, at the end.

    Args:
        vocab_size: N.
        pairs: n.
        markers: M.
        evaluation_size: Sequences in the validation set and in the test set.
        data_seed: Seed of both sets.

    Source: ours, after the forgetting of gated memories (Gers et al. 2000, Learning to Forget) and Arora et al. 2024.
    """

    vocab_size: int = 64
    pairs: int = 16
    markers: int = 3
    evaluation_size: int = 1000
    data_seed: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        even = self.vocab_size >= 8 and self.vocab_size % 2 == 0
        require(even, "vocab_size", "an even number of at least 8", self.vocab_size)
        most = self.vocab_size // 2 - 2
        require(2 <= self.pairs <= most, "pairs", f"from 2 to {most}", self.pairs)
        require(1 <= self.markers < self.pairs, "markers", f"from 1 to {self.pairs - 1}", self.markers)

    @property
    def input_size(self) -> int:
        return self.vocab_size

    @property
    def output_size(self) -> int:
        return self.vocab_size

    @property
    def majority_class(self) -> int:
        return NOTHING

    @property
    def chance(self) -> dict[str, float]:
        """Of n pairs, n / (m + 1) on average come after the last of m markers."""
        void = sum(m / (m + 1) for m in range(1, self.markers + 1)) / self.markers
        return {"loss": self._uniform_loss, "accuracy": void}

    def _draw(self, random: np.random.Generator, n: int) -> Batch:
        half, gaps = self.vocab_size // 2, self.pairs - 1
        keys = distinct(random, n, half - 2, self.pairs) + 2
        values = distinct(random, n, half, self.pairs) + half
        number = random.integers(1, self.markers + 1, (n, 1))
        has_marker = random.permuted(np.arange(gaps) < number, axis=1)
        before = np.hstack([np.zeros_like(number), has_marker.cumsum(axis=1)])
        answers = np.where(before == number, values, NOTHING)
        written = np.zeros((n, 2 * self.pairs + self.markers), np.int64)
        places = 2 * np.arange(self.pairs) + before
        np.put_along_axis(written, places, keys, axis=1)
        np.put_along_axis(written, places + 1, values, axis=1)
        rows, after = has_marker.nonzero()
        written[rows, places[rows, after] + 2] = MARKER
        order = random.permuted(np.tile(np.arange(self.pairs), (n, 1)), axis=1)
        queries, answers = (np.take_along_axis(part, order, axis=1) for part in (keys, answers))
        return Batch(torch.from_numpy(np.hstack([written, queries])), torch.from_numpy(answers))
