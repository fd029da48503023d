"""Models as they are judged, and as they act."""

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn


@contextmanager
def evaluating(model: nn.Module | None) -> Iterator[None]:
    """In evaluation mode: without dropout, and without learning the moments of what is seen. None is nobody."""
    training = model is not None and model.training
    if model is not None:
        model.eval()
    try:
        yield
    finally:
        if model is not None:
            model.train(training)
