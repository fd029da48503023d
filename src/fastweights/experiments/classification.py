"""Classification of sequences with a trained classifier."""

from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import nn

from fastweights.core.errors import require
from fastweights.tasks import SequenceFiles

AT_ONCE = 32
"""Number of sequences per batch."""


class Classified(NamedTuple):
    """A sequence by its name, its most probable class, and the probability."""

    name: str
    label: str
    probability: float


@torch.no_grad()
def classify(model: nn.Module, task: Any, path: Path) -> list[Classified]:
    """Classifies every sequence in a file or a folder, in a format of the training data; labels are ignored.

    Raises:
        InputError: The model is no classifier of sequences, or the data are not of its kind.
    """
    remedy = "Train one with fastweights train classifier."
    require(isinstance(task, SequenceFiles), "task", "a task of sequences with classes", type(task).__name__, remedy)
    examples = task.read(path)
    results: list[Classified] = []
    for start in range(0, len(examples), AT_ONCE):
        some = examples[start : start + AT_ONCE]
        best = model(task.batch([example.value for example in some])).softmax(-1)[:, 0].max(-1)
        labels = [task.classes[n] for n in best.indices.tolist()]
        results += map(Classified, [example.name for example in some], labels, best.values.tolist())
    return results
