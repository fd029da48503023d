"""Guarantees of every stream, one check each, as functions of `make`, which builds a task from options."""

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
    """Of the three parts together."""
    parts = (task.training, task.validation, task.test)
    return hashlib.sha256(b"".join(part.numpy().astype("<i8").tobytes() for part in parts)).hexdigest()


def check_it_is_always_the_same(make: Make) -> None:
    """Two tasks with the same options have the same parts, and say the same of them."""
    one, other = make(), make()
    assert fingerprints(one) == fingerprints(other), "the stream changes"
    assert one.facts() == other.facts(), "what a run folder knows of it changes"


def check_tokens_are_in_range(make: Make) -> None:
    """Every part has tokens, all of which a model for the task knows."""
    task = make()
    (size,) = task.arguments
    for part in (task.training, task.validation, task.test):
        assert part.dtype == torch.int64, f"tokens are {part.dtype}"
        assert len(part) > 1, "there is nothing to predict"
        assert 0 <= part.min() <= part.max() < size, "a token is out of range"


def check_windows_are_the_training_part(make: Make) -> None:
    """Every stream is read on from window to window, and each target is the token that comes next."""
    task = make()
    windows = task.windows(STREAMS, WINDOW)
    inputs, targets = (torch.cat(part, 1) for part in zip(*(windows[n] for n in range(len(windows))), strict=True))
    assert torch.equal(inputs[:, 1:], targets[:, :-1]), "a target is not the next token"
    length = (len(task.training) - 1) // STREAMS
    for n, stream in enumerate(inputs):
        start = n * length
        assert torch.equal(stream, task.training[start : start + len(stream)]), "a stream leaves something out"


def check_a_run_folder_is_enough_for_a_model(make: Make) -> None:
    """A task restored from its facts gives the same model, without files."""
    task = make()
    restored = make().known_by(json.loads(json.dumps(task.facts())))
    assert restored.arguments == task.arguments, "a model is made from something else"


def check_baselines_know_something(make: Make) -> None:
    """They are finite, and no worse than knowing nothing but how many tokens there are."""
    task = make()
    (size,) = task.arguments
    nothing = {"bits": math.log2(size) + 1, "perplexity": 2 * size}[task.main_metric.name]
    for name, value in task.baselines().items():
        assert 0 < value <= nothing, f"{name} has {value} {task.main_metric.name}"


def check_bad_options_are_refused(make: Make) -> None:
    """Numbers below their range."""
    assert_bad_options_are_refused(make)
