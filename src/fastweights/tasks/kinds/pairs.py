"""Pairs of texts: what is said in one language, to be said in another."""

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count, islice
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fastweights.core.errors import require
from fastweights.core.metric import BLEU, Metric
from fastweights.tasks.kinds._random import ORDER, random_stream
from fastweights.tasks.kinds.labelled import IGNORE
from fastweights.tasks.kinds.task import Task


class PairBatch(NamedTuple):
    """Sentences, padded at their end."""

    source: Tensor  # int64 [B, S]
    source_lengths: Tensor  # int64 [B]
    target: Tensor  # int64 [B, T]: a mark for the beginning, then the sentence
    target_lengths: Tensor  # int64 [B]
    wanted: Tensor  # int64 [B, T]: the sentence, then a mark for its end; IGNORE where there is nothing more


@dataclass(frozen=True)
class Sentences:
    """Sentences one after the other: millions of small tensors would take more memory than what they hold.

    >>> two = Sentences.of([torch.tensor([4, 5]), torch.tensor([6])])
    >>> two[1], two.lengths
    (tensor([6]), tensor([2, 1]))
    """

    tokens: Tensor  # int32 [all]
    ends: Tensor  # int64 [sentences]

    @staticmethod
    def of(rows: Iterable[Tensor]) -> "Sentences":
        """From token numbers `[tokens]` of every sentence."""
        found = [row.int() for row in rows]
        ends = torch.tensor([len(row) for row in found], dtype=torch.long).cumsum(0)
        return Sentences(torch.cat([torch.empty(0, dtype=torch.int32), *found]), ends)

    @property
    def lengths(self) -> Tensor:
        """int64 `[sentences]`."""
        return self.ends.diff(prepend=torch.zeros(1, dtype=torch.long))

    def __len__(self) -> int:
        return len(self.ends)

    def __iter__(self) -> Iterator[Tensor]:
        return (self[sentence] for sentence in range(len(self)))

    def __getitem__(self, sentence: int) -> Tensor:
        """int64 `[tokens]`."""
        start = self.ends[sentence - 1] if sentence else 0
        return self.tokens[start : self.ends[sentence]].long()


class PairSet(NamedTuple):
    """Pairs of sentences in the order of their files, and the targets as they were written."""

    sources: Sentences
    targets: Sentences
    references: Sequence[str]


class Pairs(Task):
    """A source and its target, sentence by sentence, with one vocabulary for both.

    A model is made from the number of tokens, and maps source, lengths, target and lengths to logits `[B, T, N]`; what
    `encode` says of sources, `decode` continues.
    """

    main_metric: ClassVar[Metric] = BLEU

    @property
    @abstractmethod
    def vocabulary(self) -> int:
        """Number of tokens, those for beginning and end included."""

    @property
    @abstractmethod
    def begin(self) -> int:
        """The token that every target begins with."""

    @property
    @abstractmethod
    def end(self) -> int:
        """The token that ends every target."""

    @property
    @abstractmethod
    def training(self) -> PairSet:
        """To learn from."""

    @property
    @abstractmethod
    def validation(self) -> PairSet:
        """For choosing when to stop and which weights to keep."""

    @property
    @abstractmethod
    def test(self) -> PairSet:
        """For the report."""

    @abstractmethod
    def encode(self, text: str) -> Tensor:
        """A sentence as token numbers."""

    @abstractmethod
    def decode(self, tokens: Tensor) -> str:
        """Token numbers as a sentence."""

    @property
    def arguments(self) -> tuple[Any, ...]:
        return (self.vocabulary,)

    def batch(self, chosen: Sequence[int], pairs: PairSet) -> PairBatch:
        """Some pairs of a set, beside each other."""
        sources, targets = ([part[n] for n in chosen] for part in (pairs.sources, pairs.targets))
        mark = torch.tensor
        return PairBatch(
            _pad(sources),
            mark([len(source) for source in sources]),
            _pad([torch.cat([mark([self.begin]), target]) for target in targets]),
            mark([len(target) + 1 for target in targets]),
            _pad([torch.cat([target, mark([self.end])]) for target in targets], IGNORE),
        )

    def train_batches(self, budget: int, seed: int, start: int = 0) -> Iterator[PairBatch]:
        """Endless batches of at most `budget` tokens, padding included, from step `start` on.

        Sentences of similar length lie together. Every epoch has other batches in another order; step n is the same
        wherever one starts, so that a run can resume.
        """
        for epoch in count():
            batches = self.plan(budget, random_stream(seed, ORDER, epoch))
            yield from (self.batch(chosen, self.training) for chosen in islice(batches, start, None))
            start = max(start - len(batches), 0)

    def plan(self, budget: int, random: np.random.Generator) -> list[list[int]]:
        """Which sentences for training are in which batch of an epoch."""
        self.require_room(budget)
        widths = self._widths
        # Equals come in any order, so that no two sentences always meet.
        order = np.lexsort([random.random(len(widths)), widths])
        batches: list[list[int]] = [[]]
        for sentence in order.tolist():
            if (len(batches[-1]) + 1) * widths[sentence] > budget:
                batches.append([])
            batches[-1].append(sentence)
        return [batches[place] for place in random.permutation(len(batches)).tolist()]

    def require_room(self, budget: int) -> None:
        """`InputError` unless every sentence for training fits into a batch of `budget` tokens."""
        most, remedy = int(self._widths.max()), "Take a larger batch_size."
        require(most <= budget, "batch_size", "at least the tokens of every sentence", f"{budget} for {most}", remedy)

    @property
    def _widths(self) -> NDArray[np.int64]:
        """Tokens of every pair for training, in the longer of its languages."""
        pairs = self.training
        return torch.maximum(pairs.sources.lengths, pairs.targets.lengths + 1).numpy()


def _pad(rows: Sequence[Tensor], fill: int = 0) -> Tensor:
    return torch.nn.utils.rnn.pad_sequence(list(rows), batch_first=True, padding_value=fill)
