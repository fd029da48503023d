"""Evaluation mode of models."""

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn


@contextmanager
def evaluating(model: nn.Module | None) -> Iterator[None]:
    """Puts a model into evaluation mode, without dropout and updates of batch statistics. None does nothing."""
    training = model is not None and model.training
    if model is not None:
        model.eval()
    try:
        yield
    finally:
        if model is not None:
            model.train(training)
