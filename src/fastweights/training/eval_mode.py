"""Evaluation mode of models."""

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn

from fastweights.steps import compiled_after


@contextmanager
def evaluating(model: nn.Module | None) -> Iterator[None]:
    """Puts a model into evaluation mode, without dropout and updates of batch statistics. None does nothing.

    Steps run layer by layer: a resumed run must get the numbers of an uninterrupted one, however many steps either has
    made in its process.
    """
    training = model is not None and model.training
    if model is not None:
        model.eval()
    try:
        with compiled_after(None):
            yield
    finally:
        if model is not None:
            model.train(training)
