"""Checks of tasks with text pairs, one per guarantee. Each takes `make`, a function that builds the task."""

import hashlib
import json
from collections.abc import Callable, Iterator
from itertools import islice

import numpy as np
import torch

from fastweights.tasks.kinds.labelled import IGNORE
from fastweights.tasks.kinds.pairs import PairBatch, Pairs, PairSet
from fastweights.testing.refusals import assert_bad_options_are_refused

Make = Callable[..., Pairs]
BUDGET = 4096


def fingerprints(task: Pairs) -> str:
    """Digest of all sentences as text, which does not depend on the tokenizer."""
    text = [[decoded(task, part), list(part.references)] for part in sets(task)]
    return hashlib.sha256(json.dumps(text).encode()).hexdigest()


def sets(task: Pairs) -> Iterator[PairSet]:
    """The training, validation and test set."""
    yield from (task.training, task.validation, task.test)


def decoded(task: Pairs, part: PairSet) -> list[str]:
    """The source sentences of a set as text."""
    return [task.decode(source) for source in part.sources]


def batches(task: Pairs, seed: int, start: int, number: int) -> list[PairBatch]:
    """The first `number` training batches from step `start`."""
    return list(islice(task.train_batches(BUDGET, seed, start), number))


def same(one: list[PairBatch], other: list[PairBatch]) -> bool:
    """Whether two lists of batches are equal."""
    shapes = [part.shape for batch in one for part in batch] == [part.shape for batch in other for part in batch]
    return shapes and all(torch.equal(a, b) for x, y in zip(one, other, strict=True) for a, b in zip(x, y, strict=True))


def check_same_options_give_the_same_task(make: Make) -> None:
    """Two tasks with the same options have the same sentences and the same facts."""
    one, other = make(), make()
    assert fingerprints(one) == fingerprints(other), "the sentences differ"
    assert one.facts() == other.facts(), "the facts for a run folder differ"


def check_resumed_batches_are_the_same(make: Make) -> None:
    """A resumed run gets the same batches, also after the end of an epoch. Another seed gives other batches."""
    task = make()
    epoch = len(task.plan(BUDGET, np.random.default_rng(0)))
    whole = batches(task, seed=1, start=0, number=epoch + 2)
    assert same(whole[epoch - 1 :], batches(task, seed=1, start=epoch - 1, number=3)), (
        "a batch depends on the first step"
    )
    assert not same(whole, batches(task, seed=2, start=0, number=epoch + 2)), "two seeds give the same batches"


def check_labels_are_shifted_targets(make: Make) -> None:
    """Labels are the targets shifted by one token, between the begin and the end mark. Padding is not scored."""
    task = make()
    for batch in batches(task, seed=1, start=0, number=3):
        assert max(batch.source.numel(), batch.target.numel()) <= BUDGET, "a batch is larger than its budget"
        for n, length in enumerate(batch.target_lengths.tolist()):
            target, labels = batch.target[n, :length], batch.labels[n]
            assert target[0] == task.bos_token_id, "a target does not start with the begin mark"
            assert labels[length - 1] == task.eos_token_id, "labels do not stop with the end mark"
            assert torch.equal(target[1:], labels[: length - 1]), "a label is not the next token"
            assert (labels[length:] == IGNORE).all(), "padding is scored"


def check_tokens_are_in_range(make: Make) -> None:
    """All tokens are below the vocabulary size, and no sentence contains a mark."""
    task = make()
    for part in sets(task):
        assert len(part.sources) == len(part.targets) == len(part.references) > 0, (
            "sources, targets and references differ in number"
        )
        for side in (part.sources, part.targets):
            assert side.lengths.min() > 0, "a sentence is empty"
            assert 0 <= side.tokens.min() <= side.tokens.max() < task.vocab_size, "a token is out of range"
            assert not torch.isin(side.tokens, torch.tensor([task.bos_token_id, task.eos_token_id])).any(), (
                "a mark is in a sentence"
            )


def check_targets_decode_to_references(make: Make) -> None:
    """Decoded targets equal the reference texts."""
    task = make()
    for part in sets(task):
        sentences = [task.decode(target) for target in part.targets]
        assert sentences == list(part.references), "a decoded target differs from its reference"


def check_facts_restore_the_model(make: Make) -> None:
    """A task restored from its facts gives the same model and the same tokens, without files."""
    task = make()
    restored = make().restored_from(json.loads(json.dumps(task.facts())))
    assert restored.arguments == task.arguments, "the model has other arguments"
    for reference in task.validation.references[:5]:
        assert torch.equal(restored.encode(reference), task.encode(reference)), "a sentence gets other tokens"  # type: ignore[attr-defined]


def check_bad_options_are_refused(make: Make) -> None:
    """Options outside their range raise an `InputError`."""
    assert_bad_options_are_refused(make)
