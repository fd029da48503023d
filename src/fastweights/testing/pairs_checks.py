"""Guarantees of all tasks of text pairs, one check each, as functions of `make`, which builds a task."""

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
    """Of all sentences as they are written: numbers of tokens depend on who makes them."""
    text = [[decoded(task, part), list(part.references)] for part in sets(task)]
    return hashlib.sha256(json.dumps(text).encode()).hexdigest()


def sets(task: Pairs) -> Iterator[PairSet]:
    """The three of a task."""
    yield from (task.training, task.validation, task.test)


def decoded(task: Pairs, part: PairSet) -> list[str]:
    """The sources of a set."""
    return [task.decode(source) for source in part.sources]


def batches(task: Pairs, seed: int, start: int, number: int) -> list[PairBatch]:
    """Some of the batches for training."""
    return list(islice(task.train_batches(BUDGET, seed, start), number))


def same(one: list[PairBatch], other: list[PairBatch]) -> bool:
    """Whether all numbers are."""
    shapes = [part.shape for batch in one for part in batch] == [part.shape for batch in other for part in batch]
    return shapes and all(torch.equal(a, b) for x, y in zip(one, other, strict=True) for a, b in zip(x, y, strict=True))


def check_it_is_always_the_same(make: Make) -> None:
    """Two tasks with the same options have the same sentences, and say the same of them."""
    one, other = make(), make()
    assert fingerprints(one) == fingerprints(other), "the sentences change"
    assert one.facts() == other.facts(), "what a run folder knows of it changes"


def check_steps_do_not_depend_on_where_one_starts(make: Make) -> None:
    """The batches of a seed are the same for all, also over the end of an epoch; another seed has others."""
    task = make()
    epoch = len(task.plan(BUDGET, np.random.default_rng(0)))
    whole = batches(task, seed=1, start=0, number=epoch + 2)
    assert same(whole[epoch - 1 :], batches(task, seed=1, start=epoch - 1, number=3)), "a step changes"
    assert not same(whole, batches(task, seed=2, start=0, number=epoch + 2)), "the seed changes nothing"


def check_batches_hold_the_sentences(make: Make) -> None:
    """Targets begin with one mark and are labels one token later, to the other mark; nothing is wanted of padding."""
    task = make()
    for batch in batches(task, seed=1, start=0, number=3):
        assert max(batch.source.numel(), batch.target.numel()) <= BUDGET, "a batch is larger than its budget"
        for n, length in enumerate(batch.target_lengths.tolist()):
            target, labels = batch.target[n, :length], batch.labels[n]
            assert target[0] == task.begin, "a target does not begin"
            assert labels[length - 1] == task.end, "a target does not end"
            assert torch.equal(target[1:], labels[: length - 1]), "what is wanted is not what comes next"
            assert (labels[length:] == IGNORE).all(), "padding is wanted"


def check_tokens_are_in_range(make: Make) -> None:
    """Models know every token, and marks stand in no sentence."""
    task = make()
    for part in sets(task):
        assert len(part.sources) == len(part.targets) == len(part.references) > 0, "sets are not of pairs"
        for side in (part.sources, part.targets):
            assert side.lengths.min() > 0, "a sentence is empty"
            assert 0 <= side.tokens.min() <= side.tokens.max() < task.vocab_size, "a token is out of range"
            assert not torch.isin(side.tokens, torch.tensor([task.begin, task.end])).any(), "a mark is in a sentence"


def check_targets_decode_to_their_references(make: Make) -> None:
    """The decoded targets score perfectly."""
    task = make()
    for part in sets(task):
        sentences = [task.decode(target) for target in part.targets]
        assert sentences == list(part.references), "a sentence is not what it was"


def check_a_run_folder_is_enough_for_a_model(make: Make) -> None:
    """A task restored from its facts gives the same model and the same tokens, without files."""
    task = make()
    restored = make().known_by(json.loads(json.dumps(task.facts())))
    assert restored.arguments == task.arguments, "a model is made from something else"
    for reference in task.validation.references[:5]:
        assert torch.equal(restored.encode(reference), task.encode(reference)), "a sentence is read in another way"  # type: ignore[attr-defined]


def check_bad_options_are_refused(make: Make) -> None:
    """Numbers below their range."""
    assert_bad_options_are_refused(make)
