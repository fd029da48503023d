"""Vector environments of Gymnasium, and errors for missing packages."""

from collections.abc import Callable
from importlib import import_module
from types import ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fastweights.tasks.kinds._random import random_stream
from fastweights.tasks.kinds.environment import TimeStep, Truncated, VectorEnv
from fastweights.tasks.sources.data_files import MissingFile
from fastweights.tasks.sources.spaces import convert_space


class MissingPackage(MissingFile):
    """A package of an optional extra is not installed."""


class GymnasiumVectorEnv(VectorEnv):
    """A vector environment of Gymnasium that is reset in the step that ends an episode.

    Args:
        environments: The vector environment, with the autoreset mode `SAME_STEP`.
        seed: Seed of its random numbers.
        split: Index of the random stream.
        arrange: Converts an observation of Gymnasium.
    """

    def __init__(self, environments: Any, seed: int, split: int, arrange: Callable[[np.ndarray], np.ndarray]) -> None:
        self.environments, self.arrange = environments, arrange
        # Members have consecutive seeds of 31 bits.
        self.seed = int(random_stream(seed, split).integers(2**31 - environments.num_envs))
        self.action_space = convert_space(environments.single_action_space)

    def reset(self) -> TimeStep:
        """Resets all environments."""
        observations, _ = self.environments.reset(seed=self.seed)
        number = self.environments.num_envs
        return self._observed(observations, np.zeros(number), np.ones(number, bool))

    def step(self, actions: Tensor) -> TimeStep:
        """Returns the next observations. After the end of an episode it is the first observation of the next one."""
        observations, reward, ended, cut, self.info = self.environments.step(self.action_space.convert(actions))
        return self._observed(observations, reward, ended | cut)._replace(
            truncated=self._truncated(np.flatnonzero(cut & ~ended))
        )

    def close(self) -> None:
        """Closes the environments."""
        self.environments.close()

    def _truncated(self, rows: np.ndarray) -> Truncated | None:
        """The episodes of these rows, which a time limit has just truncated."""
        if not len(rows):
            return None
        last = self.arrange(np.stack([self.info["final_obs"][row] for row in rows]))
        return Truncated(torch.from_numpy(rows), torch.from_numpy(np.array(last)))

    def _observed(self, observations: np.ndarray, reward: np.ndarray, first: np.ndarray) -> TimeStep:
        # A copy, since an environment may reuse the array.
        copy = torch.from_numpy(np.array(self.arrange(observations)))
        return TimeStep(copy, torch.from_numpy(reward.astype(np.float32)), torch.from_numpy(np.array(first, bool)))


def import_optional(name: str, extra: str, also: str = "") -> ModuleType:
    """Imports a module of an optional package; `MissingPackage` names its extra."""
    try:
        return import_module(name)
    except ImportError as error:
        remedy = f"pip install 'fastweights[{extra}]'{also}"
        raise MissingPackage(f"{name} must be installed, got the error: {error}. {remedy}.") from None
