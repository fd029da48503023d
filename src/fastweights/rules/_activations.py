"""Activation functions that a rule or a cell can have, by name."""

from collections.abc import Callable

import torch
from torch import Tensor


def _identity(x: Tensor) -> Tensor:
    return x


def _softmax(x: Tensor) -> Tensor:
    return x.softmax(-1)


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "identity": _identity,
    "relu": torch.relu,
    "sigmoid": torch.sigmoid,
    "softmax": _softmax,
    "tanh": torch.tanh,
}
"""Softmax over the last axis."""
