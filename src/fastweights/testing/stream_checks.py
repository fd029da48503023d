"""Checks of streams, one per guarantee. Each takes `make`, a function that builds the task from options."""

import hashlib
import json
import math
from collections.abc import Callable

import torch

from fastweights.tasks import Stream
from fastweights.testing.refusals import assert_bad_options_are_refused

Make = Callable[..., Stream]
STREAMS, WINDOW = 3, 7


def fingerprints(task: Stream) -> str:
    """Digest of the training, validation and test part together."""
    parts = (task.training, task.validation, task.test)
    return hashlib.sha256(b"".join(part.numpy().astype("<i8").tobytes() for part in parts)).hexdigest()


def check_same_options_give_the_same_task(make: Make) -> None:
    """Two tasks with the same options have the same parts and the same facts."""
    one, other = make(), make()
    assert fingerprints(one) == fingerprints(other), "the parts differ"
    assert one.facts() == other.facts(), "the facts for a run folder differ"


def check_tokens_are_in_range(make: Make) -> None:
    """Every part has tokens, all of them below the vocabulary size of the task."""
    task = make()
    (size,) = task.arguments
    for part in (task.training, task.validation, task.test):
        assert part.dtype == torch.int64, f"tokens are {part.dtype}"
        assert len(part) > 1, "a part has fewer than two tokens"
        assert 0 <= part.min() <= part.max() < size, "a token is out of range"


def check_windows_cover_the_training_part(make: Make) -> None:
    """Consecutive windows continue their streams, and each target is the next token."""
    task = make()
    windows = task.windows(STREAMS, WINDOW)
    inputs, targets = (torch.cat(part, 1) for part in zip(*(windows[n] for n in range(len(windows))), strict=True))
    assert torch.equal(inputs[:, 1:], targets[:, :-1]), "a target is not the next token"
    length = (len(task.training) - 1) // STREAMS
    for n, stream in enumerate(inputs):
        start = n * length
        assert torch.equal(stream, task.training[start : start + len(stream)]), "a stream skips tokens"


def check_facts_restore_the_model(make: Make) -> None:
    """A task restored from its facts gives the same model, without files."""
    task = make()
    restored = make().restored_from(json.loads(json.dumps(task.facts())))
    assert restored.arguments == task.arguments, "the model has other arguments"


def check_baselines_beat_a_uniform_guess(make: Make) -> None:
    """Baselines are finite and no worse than a uniform guess."""
    task = make()
    (size,) = task.arguments
    uniform = {"bits": math.log2(size) + 1, "perplexity": 2 * size}[task.main_metric.name]
    for name, value in task.baselines().items():
        assert 0 < value <= uniform, f"{name} has {value} {task.main_metric.name}"


def check_bad_options_are_refused(make: Make) -> None:
    """Options outside their range raise an `InputError`."""
    assert_bad_options_are_refused(make)
