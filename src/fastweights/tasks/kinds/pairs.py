"""Pairs of texts, for translation."""

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
    """Sentence pairs, padded at the end."""

    source: Tensor  # int64 [B, S]
    source_lengths: Tensor  # int64 [B]
    target: Tensor  # int64 [B, T]: the begin token, then the sentence
    target_lengths: Tensor  # int64 [B]
    labels: Tensor  # int64 [B, T]: the sentence, then the end token; IGNORE for padding


@dataclass(frozen=True)
class Sentences:
    """Concatenated sentences, since millions of small tensors would need more memory than their values.

    >>> two = Sentences.of([torch.tensor([4, 5]), torch.tensor([6])])
    >>> two[1], two.lengths
    (tensor([6]), tensor([2, 1]))
    """

    tokens: Tensor  # int32 [all]
    ends: Tensor  # int64 [sentences]

    @staticmethod
    def of(rows: Iterable[Tensor]) -> "Sentences":
        """Builds the sentences from token numbers `[tokens]` of each."""
        parts = [row.int() for row in rows]
        ends = torch.tensor([len(row) for row in parts], dtype=torch.long).cumsum(0)
        return Sentences(torch.cat([torch.empty(0, dtype=torch.int32), *parts]), ends)

    @property
    def lengths(self) -> Tensor:
        """Number of tokens per sentence, int64 `[sentences]`."""
        return self.ends.diff(prepend=torch.zeros(1, dtype=torch.long))

    def __len__(self) -> int:
        return len(self.ends)

    def __iter__(self) -> Iterator[Tensor]:
        return (self[sentence] for sentence in range(len(self)))

    def __getitem__(self, sentence: int) -> Tensor:
        """Returns the tokens of a sentence, int64 `[tokens]`."""
        start = self.ends[sentence - 1] if sentence else 0
        return self.tokens[start : self.ends[sentence]].long()


class PairSet(NamedTuple):
    """Pairs of sentences in the order of their files, and the raw target texts."""

    sources: Sentences
    targets: Sentences
    references: Sequence[str]


class Pairs(Task):
    """A source and its target, sentence by sentence, with one vocabulary for both.

    The argument of a model is the number of tokens. It maps source, lengths, target and lengths to logits `[B, T, N]`,
    with `encode` for the source and `decode` for the target.
    """

    main_metric: ClassVar[Metric] = BLEU

    @property
    @abstractmethod
    def vocab_size(self) -> int:
        """Number of tokens, with the begin and end tokens."""

    @property
    @abstractmethod
    def bos_token_id(self) -> int:
        """The first token of every target."""

    @property
    @abstractmethod
    def eos_token_id(self) -> int:
        """The token that ends every target."""

    @property
    @abstractmethod
    def training(self) -> PairSet:
        """The training set."""

    @property
    @abstractmethod
    def validation(self) -> PairSet:
        """The validation set, for early stopping."""

    @property
    @abstractmethod
    def test(self) -> PairSet:
        """The test set."""

    @abstractmethod
    def encode(self, text: str) -> Tensor:
        """Returns the token numbers of a sentence."""

    @abstractmethod
    def decode(self, tokens: Tensor) -> str:
        """Returns the sentence of token numbers."""

    @property
    def arguments(self) -> tuple[Any, ...]:
        return (self.vocab_size,)

    def batch(self, chosen: Sequence[int], pairs: PairSet) -> PairBatch:
        """Returns pairs of a set as a batch."""
        sources, targets = ([part[n] for n in chosen] for part in (pairs.sources, pairs.targets))
        mark = torch.tensor
        return PairBatch(
            _pad(sources),
            mark([len(source) for source in sources]),
            _pad([torch.cat([mark([self.bos_token_id]), target]) for target in targets]),
            mark([len(target) + 1 for target in targets]),
            _pad([torch.cat([target, mark([self.eos_token_id])]) for target in targets], IGNORE),
        )

    def train_batches(self, budget: int, seed: int, start: int = 0) -> Iterator[PairBatch]:
        """Endless batches of at most `budget` tokens, with padding, from step `start` on.

        A batch has sentences of similar length. Every epoch has different batches in another order. Step n does not
        depend on the start, so that a run can resume.
        """
        for epoch in count():
            batches = self.plan(budget, random_stream(seed, ORDER, epoch))
            yield from (self.batch(chosen, self.training) for chosen in islice(batches, start, None))
            start = max(start - len(batches), 0)

    def plan(self, budget: int, random: np.random.Generator) -> list[list[int]]:
        """The indices of the training sentences in each batch of an epoch."""
        self.require_room(budget)
        widths = self._widths
        # Sentences of equal length are shuffled, so that batches differ between epochs.
        order = np.lexsort([random.random(len(widths)), widths])
        batches: list[list[int]] = [[]]
        for sentence in order.tolist():
            if (len(batches[-1]) + 1) * widths[sentence] > budget:
                batches.append([])
            batches[-1].append(sentence)
        return [batches[n] for n in random.permutation(len(batches)).tolist()]

    def require_room(self, budget: int) -> None:
        """`InputError` unless every sentence for training fits into a batch of `budget` tokens."""
        most, remedy = int(self._widths.max()), "Use a larger batch_size."
        require(most <= budget, "batch_size", "at least the length of every sentence", f"{budget} for {most}", remedy)

    @property
    def _widths(self) -> NDArray[np.int64]:
        """Number of tokens of every training pair, in the longer of its languages."""
        pairs = self.training
        return torch.maximum(pairs.sources.lengths, pairs.targets.lengths + 1).numpy()


def _pad(rows: Sequence[Tensor], fill: int = 0) -> Tensor:
    return torch.nn.utils.rnn.pad_sequence(list(rows), batch_first=True, padding_value=fill)
