"""Ridge regression on pixels or oriented gradients, as a baseline without a network."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

STRENGTHS = tuple(10.0**n for n in range(-4, 4))
"""Strengths of the penalty, as fractions of the mean squared length of a centred example."""

CELL = 8
BINS = 9


def ridge_accuracy(features: Sequence[Array], labels: Sequence[NDArray[np.int64]]) -> float:
    """Accuracy on test data of a linear map to one-hot labels, whose penalty is chosen on validation data.

    Args:
        features: `[examples, features]` of training, validation and test data.
        labels: Their classes.
    """
    centre = features[0].mean(0)
    train, validation, test = (part - centre for part in features)
    hot = np.eye(int(labels[0].max()) + 1)[labels[0]]
    gram, centred = train @ train.T, hot - hot.mean(0)

    def accuracy(strength: float, part: Array, truth: NDArray[np.int64]) -> float:
        penalty = strength * np.trace(gram) / len(gram) * np.eye(len(gram))
        outputs = part @ train.T @ np.linalg.solve(gram + penalty, centred) + hot.mean(0)
        return float((outputs.argmax(1) == truth).mean())

    best = max(STRENGTHS, key=lambda strength: accuracy(strength, validation, labels[1]))
    return accuracy(best, test, labels[2])


def oriented_gradients(images: Array) -> Array:
    """Histograms of the directions of gradients in cells of 8 x 8 pixels, by blocks of 2 x 2 cells of length 1.

    Source: Dalal and Triggs 2005, Histograms of Oriented Gradients for Human Detection.

    Args:
        images: `[images, height, width]`, a multiple of 8 each.
    """
    down, across = np.gradient(images, axis=(1, 2))
    bins = np.floor(np.arctan2(down, across) % np.pi / np.pi * BINS).astype(int) % BINS
    weighted = np.hypot(down, across)[..., None] * np.eye(BINS)[bins]
    n, height, width, _ = weighted.shape
    cells = weighted.reshape(n, height // CELL, CELL, width // CELL, CELL, BINS).sum((2, 4))
    blocks = np.concatenate([cells[:, :-1, :-1], cells[:, 1:, :-1], cells[:, :-1, 1:], cells[:, 1:, 1:]], -1)
    lengths = np.linalg.norm(blocks, axis=-1, keepdims=True)
    return (blocks / np.maximum(lengths, 1e-9)).reshape(n, -1)
