"""Environments of agents, run as batches."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from fastweights.core.action_spaces import Actions
from fastweights.core.errors import invalid
from fastweights.core.metric import RETURN, Metric
from fastweights.tasks.kinds._random import TEST, TRAINING
from fastweights.tasks.kinds.task import Task


class Truncated(NamedTuple):
    """Truncated episodes, which a time limit ended. The environment could continue from `observation`."""

    rows: Tensor  # int64 [N]: the environments
    observation: Tensor  # [N, *shape]: the last observation of each of these episodes


class TimeStep(NamedTuple):
    """The inputs of agents in B environments before they act."""

    observation: Tensor  # [B, *shape]: the observations, uint8 for images, float32 for numbers
    reward: Tensor  # float32 [B]: of the last action, also where that ended an episode; 0 at the start
    first: Tensor  # bool [B]: whether the observation is the first of an episode
    truncated: Truncated | None = (
        None  # episodes that the time limit truncated at the last action; None if there are none
    )


def require_finite(observed: TimeStep, step: str) -> None:
    """Raises `InputError` with the name of the observation or the reward, and the time step, unless all are finite.

    Args:
        observed: What an environment returned.
        step: Time step at which it was returned.
    """
    final = torch.zeros(0) if observed.truncated is None else observed.truncated.observation
    parts = {"reward": observed.reward, "observation": observed.observation, "last observation of an episode": final}
    remedy = "Correct the environment; then resume the run from its last checkpoint."
    for name, part in parts.items():
        if part.is_floating_point() and not bool((fits := part.isfinite()).all()):
            raise invalid(name, "finite", f"{float(part[~fits][0])} at {step}", remedy)


class VectorEnv(ABC):
    """A batch of environments. One that ends is reset at once, so its next observation is the first of an episode."""

    @abstractmethod
    def reset(self) -> TimeStep:
        """Returns the first observations; called once."""

    @abstractmethod
    def step(self, actions: Tensor) -> TimeStep:
        """Returns the results of actions, `[B, *actions.shape]`."""

    def close(self) -> None:  # noqa: B027 (most hold nothing)
        """Releases the resources of the environments."""


class Environment(Task):
    """Base class of single-agent environments. The metric is the return, the sum of the rewards of an episode."""

    main_metric: ClassVar[Metric] = RETURN

    @property
    @abstractmethod
    def shape(self) -> tuple[int, ...]:
        """Shape of an observation; `(channels, side, side)` for images."""

    @property
    @abstractmethod
    def actions(self) -> Actions:
        """The action space."""

    @property
    def from_pixels(self) -> bool:
        """Whether observations are images."""
        return False

    @property
    def arguments(self) -> tuple[Any, ...]:
        return self.shape, self.actions, self.from_pixels

    @property
    def env_multiple(self) -> int:
        """The number of environments is a multiple of this."""
        return 1

    @property
    def tests(self) -> Mapping[str, int]:
        """The splits of the test by name, each with as many episodes."""
        return {"all": TEST}

    def summary(self, returns: Tensor) -> dict[str, float]:
        """Computes further results from returns.

        Args:
            returns: Returns `[episodes, environments]`.

        Returns:
            The results by name, with the main metric if it is not the mean of the returns.
        """
        return {}

    @abstractmethod
    def make_envs(self, number: int, seed: int, split: int = TRAINING) -> VectorEnv:
        """Creates a batch of environments.

        Args:
            number: Number of environments.
            seed: Seed that determines them.
            split: Training (0), validation (1) or test (2).

        Returns:
            The environments.
        """
