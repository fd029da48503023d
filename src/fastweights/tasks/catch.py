"""Catch: a ball falls, and after a while the screen goes blank."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fastweights.core.action_spaces import Actions, Discrete
from fastweights.core.errors import require
from fastweights.tasks.kinds._random import TRAINING, random_stream
from fastweights.tasks.kinds.environment import Environment, TimeStep, VectorEnv


@dataclass(frozen=True)
class Catch(Environment):
    """Catch: move a paddle under a falling ball that becomes invisible.

    Input -> target: Frames of a falling ball, of which the first M are visible -> reward 1 if the paddle is under the
    ball at the end, else -1.

    The screen has N x N pixels, 1 at the ball and the paddle. The ball, one pixel, starts in a random column of the
    first row and falls one row per frame; the paddle starts in the middle of the last row. Actions: 0 moves it to the
    left, 1 keeps it, 2 moves it to the right. An episode has N frames and N - 1 actions; the last action is rewarded.
    After M frames the screen is blank.
    With 10 rows, 5 columns, a paddle of 1 and all frames visible it is Catch of bsuite and of envpool.

    Args:
        size: N, the number of rows, and of columns if that is 0.
        visible_frames: M; 0 for all.
        columns: Number of pixels per row; 0 for N.
        paddle: Width of the paddle.

    Source: Ba et al. 2016, Sec. 4.4; Osband et al. 2020 (bsuite), whose paddle begins in the middle.
    """

    size: int = 16
    visible_frames: int = 3
    columns: int = 0
    paddle: int = 2

    def __post_init__(self) -> None:
        require(self.size >= 2, "size", "at least 2", self.size)
        require(
            0 <= self.visible_frames <= self.size, "visible_frames", f"from 0 to size={self.size}", self.visible_frames
        )
        require(self.columns >= 0, "columns", "at least 0", self.columns)
        require(1 <= self.paddle <= self.width, "paddle", f"from 1 to {self.width}", self.paddle)

    @property
    def width(self) -> int:
        """Number of pixels per row."""
        return self.columns or self.size

    @property
    def shape(self) -> tuple[int, ...]:
        return self.size, self.width

    @property
    def actions(self) -> Actions:
        return Discrete(3)

    def make_envs(self, number: int, seed: int, split: int = TRAINING) -> VectorEnv:
        return CatchVectorEnv(self, number, random_stream(seed, split))


class CatchVectorEnv(VectorEnv):
    """A batch of Catch environments that run in lockstep."""

    def __init__(self, task: Catch, number: int, random: np.random.Generator) -> None:
        self.task, self.number, self.random = task, number, random

    def reset(self) -> TimeStep:
        """Places balls in the first row and paddles in the middle."""
        task = self.task
        self.row = 0
        self.ball = self.random.integers(0, task.width, self.number)
        self.paddle = np.full(self.number, (task.width - task.paddle + 1) // 2)
        return self._observed(np.zeros(self.number, np.float32))

    def step(self, actions: Tensor) -> TimeStep:
        """Moves the paddles and lets the balls fall."""
        task = self.task
        self.paddle = np.clip(self.paddle + actions.numpy() - 1, 0, task.width - task.paddle)
        self.row += 1
        if self.row < task.size - 1:
            return self._observed(np.zeros(self.number, np.float32))
        caught = (self.paddle <= self.ball) & (self.ball < self.paddle + task.paddle)
        return self.reset()._replace(reward=torch.from_numpy(np.where(caught, 1, -1).astype(np.float32)))

    def _observed(self, reward: np.ndarray) -> TimeStep:
        screen = np.zeros((self.number, *self.task.shape), np.float32)
        if self.row < (self.task.visible_frames or self.task.size):
            members = np.arange(self.number)
            screen[members, self.row, self.ball] = 1
            for pixel in range(self.task.paddle):
                screen[members, -1, self.paddle + pixel] = 1
        first = torch.full((self.number,), self.row == 0)
        return TimeStep(torch.from_numpy(screen), torch.from_numpy(reward), first)
