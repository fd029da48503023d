"""Environments: what an agent sees, does and earns, in many of them side by side."""

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


class Cut(NamedTuple):
    """Episodes that a time limit ended: truncation, and not termination. The task could go on from `seen`."""

    rows: Tensor  # int64 [N]: the environments
    seen: Tensor  # [N, *shape]: the last observation of each of these episodes


class Observed(NamedTuple):
    """What agents in B environments are told before they act."""

    seen: Tensor  # [B, *shape]: uint8 for pictures, float32 for numbers
    reward: Tensor  # float32 [B]: of the last action, also where that ended an episode; 0 at the beginning
    first: Tensor  # bool [B]: whether an episode begins
    cut: Cut | None = None  # what the last action ended by a time limit; None for nothing


def require_finite(observed: Observed, place: str) -> None:
    """`InputError` that names the observation or the reward, and the place, unless all numbers are finite.

    Args:
        observed: What an environment returned.
        place: Time step at which it was returned.
    """
    final = torch.zeros(0) if observed.cut is None else observed.cut.seen
    parts = {"reward": observed.reward, "observation": observed.seen, "last observation of an episode": final}
    remedy = "Correct the environment; then resume the run from its last checkpoint."
    for name, part in parts.items():
        if part.is_floating_point() and not bool((fits := part.isfinite()).all()):
            raise invalid(name, "finite", f"{float(part[~fits][0])} at {place}", remedy)


class Worlds(ABC):
    """Environments side by side. One that has come to its end begins anew at once: its next observation is a first."""

    @abstractmethod
    def begin(self) -> Observed:
        """What there is to see at first; called once."""

    @abstractmethod
    def step(self, actions: Tensor) -> Observed:
        """The results of actions, `[B, *actions.shape]`."""

    def close(self) -> None:  # noqa: B027 (most hold nothing)
        """Lets go of what is held."""


class Environment(Task):
    """A game for one: actions, and a return, the sum of the rewards of an episode."""

    main_metric: ClassVar[Metric] = RETURN

    @property
    @abstractmethod
    def shape(self) -> tuple[int, ...]:
        """Of an observation; `(channels, side, side)` of a picture."""

    @property
    @abstractmethod
    def actions(self) -> Actions:
        """The action space."""

    @property
    def pictures(self) -> bool:
        """Whether observations are pictures."""
        return False

    @property
    def arguments(self) -> tuple[Any, ...]:
        return self.shape, self.actions, self.pictures

    @property
    def together(self) -> int:
        """Environments are a multiple of this number."""
        return 1

    @property
    def tests(self) -> Mapping[str, int]:
        """The splits of the test by name, each with as many episodes."""
        return {"all": TEST}

    def summary(self, returns: Tensor) -> dict[str, float]:
        """More to tell of returns `[episodes, environments]`; the main metric, if it is not their mean."""
        return {}

    @abstractmethod
    def worlds(self, number: int, seed: int, split: int = TRAINING) -> Worlds:
        """Environments for training (0), validation (1) or the test (2). The same seed gives the same ones."""
