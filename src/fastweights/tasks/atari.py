"""Atari games."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, get_args

import numpy as np
import torch
from torch import Tensor

from fastweights.core.action_spaces import Actions
from fastweights.core.errors import require, require_name
from fastweights.tasks.kinds._random import TRAINING
from fastweights.tasks.kinds.environment import Environment, TimeStep, VectorEnv
from fastweights.tasks.sources.spaces import convert_space
from fastweights.tasks.sources.vector_environment import GymnasiumVectorEnv, import_optional

Episode = Literal["life", "game"]


@dataclass(frozen=True)
class Atari(Environment):
    """Atari games from the Arcade Learning Environment.

    Input -> target: Four grey frames of 84 x 84 pixels -> the change of the score, over four frames with one action.

    As in the papers' code: 1 to 30 no-op actions at the start, the maximum of the last two frames, FIRE where a game
    waits for it, no sticky actions, the action set of the game. Rewards are not clipped by the environment.
    By default an episode is a life, in training and for the score, and the game continues with the next life; a game
    ends with the last life. The first action of a later life is FIRE, whatever the action of the agent, if the game has
    it. Some games wait for FIRE, which may never be the most likely action.

    Args:
        game: As ALE calls it, such as "space_invaders".
        episode: What an episode is in training: "life" or "game".
        score: What it is for the score, on validation and test data.
        frames: Frames after which a game is cut off, all its lives together. ALE's default is 108,000. Gym, which the
            papers' code uses, has 400,000, and 300,000 for Space Invaders.

    Needs: the extra `rl`, which brings the games.

    Source: Bellemare et al. 2013; Irie et al. 2021, Sec. 4.4.
    """

    game: str = "pong"
    episode: Episode = "life"
    score: Episode = "life"
    frames: int = 108_000

    def __post_init__(self) -> None:
        for name in ("episode", "score"):
            require_name(name, getattr(self, name), get_args(Episode))
        require(1 <= self.frames < 2**31, "frames", "from 1 to 2,147,483,647", self.frames)

    @property
    def from_pixels(self) -> bool:
        return True

    @property
    def shape(self) -> tuple[int, ...]:
        return 4, 84, 84

    @cached_property
    def actions(self) -> Actions:
        environment = self._make(1, self.episode)
        actions = convert_space(environment.single_action_space).actions
        environment.close()
        return actions

    def make_envs(self, number: int, seed: int, split: int = TRAINING) -> VectorEnv:
        episode = self.episode if split == TRAINING else self.score
        kind = EpisodicLifeVectorEnv if episode == "life" else GymnasiumVectorEnv
        return kind(self._make(number, episode), seed, split, _same)

    def _make(self, number: int, episode: Episode) -> Any:
        ale = import_optional("ale_py", "rl")
        require_name("game", self.game, ale.roms.get_all_rom_ids())
        mode = import_optional("gymnasium", "rl").vector.AutoresetMode.SAME_STEP
        lives = episode == "life"
        options = {"autoreset_mode": mode, "reward_clipping": False, "max_num_frames_per_episode": self.frames}
        # With its `episodic_life`, ALE restarts the whole game after a life.
        return ale.AtariVectorEnv(self.game, number, life_loss_info=lives, **options)


class EpisodicLifeVectorEnv(GymnasiumVectorEnv):
    """Environments whose episodes are lives of a game."""

    def reset(self) -> TimeStep:
        """Returns the first observations."""
        names = [action.name for action in self.environments.ale.get_action_set()]
        self.fire = names.index("FIRE") if "FIRE" in names else None
        self.lives, self.lost = (
            torch.zeros(self.environments.num_envs),
            torch.zeros(self.environments.num_envs, dtype=torch.bool),
        )
        return super().reset()

    def step(self, actions: Tensor) -> TimeStep:
        """Takes a step, with FIRE where a life was lost in the step before."""
        observed = super().step(actions if self.fire is None else actions.masked_fill(self.lost, self.fire))
        lives = torch.from_numpy(self.info["lives"])
        self.lives, self.lost = lives, observed.first & (lives < self.lives)
        return observed


def _same(observations: np.ndarray) -> np.ndarray:
    return observations
