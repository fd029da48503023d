"""Environments of Gymnasium's vector interface as ours, and what to say where a package is missing."""

from collections.abc import Callable
from importlib import import_module
from types import ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fastweights.errors import InputError, require
from fastweights.tasks._files import MissingFile
from fastweights.tasks.kinds._random import random_stream
from fastweights.tasks.kinds.environment import Observed, Worlds


class MissingPackage(MissingFile):
    """A package of an optional extra that is not installed."""


class VectorWorlds(Worlds):
    """A vector environment of Gymnasium that begins an episode anew in the step that ends it.

    Args:
        made: The vector environment.
        seed: Where its random numbers begin.
        split: Which stream of them.
        arrange: What makes an observation of ours of one of its.
    """

    def __init__(self, made: Any, seed: int, split: int, arrange: Callable[[np.ndarray], np.ndarray]) -> None:
        self.made, self.arrange = made, arrange
        # Members have seeds that follow each other, and all are of 31 bits.
        self.seed = int(random_stream(seed, split).integers(2**31 - made.num_envs))
        self.least = int(getattr(made.single_action_space, "start", 0))

    def begin(self) -> Observed:
        """Resets all of them."""
        seen, _ = self.made.reset(seed=self.seed)
        number = self.made.num_envs
        return self._observed(seen, np.zeros(number), np.ones(number, bool))

    def step(self, actions: Tensor) -> Observed:
        """A time limit ends an episode as its end does."""
        seen, reward, ended, cut, self.info = self.made.step(actions.numpy() + self.least)
        return self._observed(seen, reward, ended | cut)

    def close(self) -> None:
        """Ends what it runs."""
        self.made.close()

    def _observed(self, seen: np.ndarray, reward: np.ndarray, first: np.ndarray) -> Observed:
        # Copied: an environment may write into the same array again.
        copy = torch.from_numpy(np.array(self.arrange(seen)))
        return Observed(copy, torch.from_numpy(reward.astype(np.float32)), torch.from_numpy(np.array(first, bool)))


def needed(name: str, extra: str, also: str = "") -> ModuleType:
    """A module of an optional package; `MissingPackage` names its extra."""
    try:
        return import_module(name)
    except ImportError as error:
        remedy = f"pip install 'fastweights[{extra}]'{also}"
        raise MissingPackage(f"{name} must be installed, got: {error}. {remedy}.") from None


def number_of_actions(space: Any) -> int:
    """How many a space of Gymnasium has; `InputError` if they cannot be counted."""
    remedy = "Put a wrapper around it that numbers its actions."
    require(type(space).__name__ == "Discrete", "action space", "Discrete", space, remedy)
    return int(space.n)


def found(make: Callable[[], Any], what: str) -> Any:
    """What `make` makes; `InputError` in one line if Gymnasium does not know it."""
    import gymnasium

    try:
        return make()
    except ModuleNotFoundError as error:
        raise MissingPackage(f"id must be of a package that is installed, got '{what}': {error}.") from None
    except gymnasium.error.Error as error:
        raise InputError(f"id must be one that Gymnasium knows, got '{what}': {' '.join(str(error).split())}") from None
