"""Environments of Gymnasium's vector interface as ours, and what to say where a package is missing."""

from collections.abc import Callable
from importlib import import_module
from types import ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fastweights.tasks.kinds._random import random_stream
from fastweights.tasks.kinds.environment import Cut, Observed, Worlds
from fastweights.tasks.sources.data_files import MissingFile
from fastweights.tasks.sources.spaces import given


class MissingPackage(MissingFile):
    """A package of an optional extra that is not installed."""


class VectorWorlds(Worlds):
    """A vector environment of Gymnasium that begins an episode anew in the step that ends it.

    Args:
        made: The vector environment, whose autoreset mode is `SAME_STEP`.
        seed: Where its random numbers begin.
        split: Which stream of them.
        arrange: What makes an observation of ours of one of its.
    """

    def __init__(self, made: Any, seed: int, split: int, arrange: Callable[[np.ndarray], np.ndarray]) -> None:
        self.made, self.arrange = made, arrange
        # Members have seeds that follow each other, and all are of 31 bits.
        self.seed = int(random_stream(seed, split).integers(2**31 - made.num_envs))
        self.given = given(made.single_action_space)

    def begin(self) -> Observed:
        """Resets all of them."""
        seen, _ = self.made.reset(seed=self.seed)
        number = self.made.num_envs
        return self._observed(seen, np.zeros(number), np.ones(number, bool))

    def step(self, actions: Tensor) -> Observed:
        """The next observations; of an episode that ends, the first observation of the next one."""
        seen, reward, ended, cut, self.info = self.made.step(self.given.convert(actions))
        return self._observed(seen, reward, ended | cut)._replace(cut=self._cut(np.flatnonzero(cut & ~ended)))

    def close(self) -> None:
        """Ends what it runs."""
        self.made.close()

    def _cut(self, rows: np.ndarray) -> Cut | None:
        """The episodes of these rows, which a time limit has just ended."""
        if not len(rows):
            return None
        last = self.arrange(np.stack([self.info["final_obs"][row] for row in rows]))
        return Cut(torch.from_numpy(rows), torch.from_numpy(np.array(last)))

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
