"""The T-maze: a sign, a corridor, and a junction where the sign determines the reward."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fastweights.core.action_spaces import Actions, Discrete
from fastweights.core.errors import require
from fastweights.tasks.kinds._random import TRAINING, random_stream
from fastweights.tasks.kinds.environment import Environment, TimeStep, VectorEnv

RIGHT, UP, LEFT, DOWN = range(4)


@dataclass(frozen=True)
class TMaze(Environment):
    """T-maze: remember a sign until the junction at the end of a corridor.

    Input -> target: Sign at step 1, L steps of corridor -> reward 1 if the turn at the junction is as the sign
    indicated, else 0.

    An episode has L + 1 actions: right, up, left or down. Up and down have an effect only at the junction, L positions
    to the right of the start. At every step at which the agent is not at the expected position, it loses 1 / L. Only
    the last action is rewarded, if it is taken at the junction. An observation has three numbers: the sign (1 for up,
    -1 for down) at the first step, whether the agent is in the corridor, and whether it is at the junction. Walking
    needs no memory; the turn at the end needs a memory of L steps.

    Args:
        length: L.

    Source: Ni et al. 2023 (When Do Transformers Shine in RL?), Sec. 5.1, the passive T-maze; Bakker 2002.
    """

    length: int = 10

    def __post_init__(self) -> None:
        require(self.length >= 1, "length", "at least 1", self.length)

    @property
    def shape(self) -> tuple[int, ...]:
        return (3,)

    @property
    def actions(self) -> Actions:
        return Discrete(4)

    def make_envs(self, number: int, seed: int, split: int = TRAINING) -> VectorEnv:
        return TMazeVectorEnv(self, number, random_stream(seed, split))


class TMazeVectorEnv(VectorEnv):
    """T-mazes in lockstep: all episodes begin and end together."""

    def __init__(self, task: TMaze, number: int, random: np.random.Generator) -> None:
        self.length, self.number, self.random = task.length, number, random

    def reset(self) -> TimeStep:
        """In front of the sign."""
        self.time = 0
        self.sign = 1 - 2 * self.random.integers(0, 2, self.number)
        self.position = np.zeros(self.number, np.int64)
        return self._observed(np.zeros(self.number, np.float32))

    def step(self, actions: Tensor) -> TimeStep:
        """Walks, or turns at the junction."""
        moves = actions.numpy()
        self.time += 1
        if self.time > self.length:
            turn = np.where(moves == UP, 1, np.where(moves == DOWN, -1, 0))
            right = (self.position == self.length) & (turn == self.sign)
            return self.reset()._replace(reward=torch.from_numpy(right.astype(np.float32)))
        walked = (moves == RIGHT).astype(np.int64) - (moves == LEFT)
        self.position = np.clip(self.position + walked, 0, self.length)
        late = (self.position < self.time).astype(np.float32)
        return self._observed(-late / np.float32(self.length))

    def _observed(self, reward: np.ndarray) -> TimeStep:
        junction = self.position == self.length
        observations = np.stack([self.sign * (self.time == 0), ~junction, junction], axis=-1).astype(np.float32)
        first = torch.full((self.number,), self.time == 0)
        return TimeStep(torch.from_numpy(observations), torch.from_numpy(reward), first)
