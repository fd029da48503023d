"""ProcGen: games with procedurally generated levels, one game or several in parallel."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, get_args

import numpy as np
import torch
from torch import Tensor

from fastweights.core.action_spaces import Actions, Discrete
from fastweights.core.errors import require, require_name
from fastweights.core.metric import RETURN, SCORE, Metric
from fastweights.tasks.kinds._random import TEST, TRAINING, random_stream
from fastweights.tasks.kinds.environment import Environment, TimeStep, Truncated, VectorEnv
from fastweights.tasks.sources.vector_environment import MissingPackage, import_optional

Distribution = Literal["easy", "hard", "memory"]

EASY = {
    "bigfish": (1.0, 40.0),
    "fruitbot": (-1.5, 32.4),
    "leaper": (3.0, 10.0),
    "maze": (5.0, 10.0),
    "plunder": (4.5, 30.0),
    "starpilot": (2.5, 64.0),
}
HARD = {"dodgeball": (1.5, 19.0), "heist": (2.0, 10.0), "maze": (4.0, 10.0), "miner": (1.5, 20.0)}
"""Returns of random actions and of the best agents, by game; those of hard games also serve for memory."""

BOUNDS: dict[str, dict[str, tuple[float, float]]] = {"easy": EASY, "hard": HARD, "memory": HARD}
TEST_LEVELS = (1000, 1200, 1400)
"""First levels of the three sets for the test."""

LEVELS = 200
"""Levels of a set for the test."""

QT = ", and on Debian apt install libqt5core5a libqt5gui5"


@dataclass(frozen=True)
class Procgen(Environment):
    """Procgen games, several in parallel.

    Input -> target: An image of 64 x 64 pixels -> the change of the score, in levels of several games that run in
    parallel.

    Environment i plays game i mod N. An agent learns from the first levels, and validates on them. The test has levels
    that it has never seen, in three sets: 1000 to 1199, 1200 to 1399 and 1400 to 1599. The score is the mean over games
    of (R - R_min) / (R_max - R_min). With one game the main metric is the return.

    Args:
        games: Names of the N games.
        distribution: "easy", "hard", or "memory", where levels are larger and only a part of them is visible.
        levels: Number of training levels.

    Needs: the extra `procgen`, and on Debian the packages libqt5core5a and libqt5gui5.

    Source: Cobbe et al. 2020 (ProcGen), Appendix C; Irie et al. 2022, Sec. 4.3.
    """

    games: tuple[str, ...] = tuple(EASY)
    distribution: Distribution = "easy"
    levels: int = 200

    main_metric: ClassVar[Metric] = SCORE

    def __post_init__(self) -> None:
        require_name("distribution", self.distribution, get_args(Distribution))
        require(len(self.games) >= 1, "games", "at least one game", len(self.games))
        for game in self.games:
            require_name("game", game, BOUNDS[self.distribution])
        require(self.levels >= 1, "levels", "at least 1", self.levels)
        if self.env_multiple == 1:
            object.__setattr__(self, "main_metric", RETURN)

    @property
    def from_pixels(self) -> bool:
        return True

    @property
    def shape(self) -> tuple[int, ...]:
        return 3, 64, 64

    @property
    def actions(self) -> Actions:
        return Discrete(15)

    @property
    def env_multiple(self) -> int:
        return len(self.games)

    def make_envs(self, number: int, seed: int, split: int = TRAINING) -> VectorEnv:
        require(number % self.env_multiple == 0, "batch_size", f"a multiple of {self.env_multiple}, the games", number)
        first, levels = self._levels(split)
        envpool = import_optional("envpool", "procgen", QT)
        random = random_stream(seed, split)

        def make(game: str) -> Any:
            name = f"{game.capitalize()}{self.distribution.capitalize()}-v0"
            options = {"start_level": first, "num_levels": levels, "seed": int(random.integers(2**31 - number))}
            try:
                return envpool.make(name, "gymnasium", num_envs=number // self.env_multiple, num_threads=1, **options)
            except ImportError as error:
                remedy = f"pip install 'fastweights[procgen]'{QT}"
                raise MissingPackage(f"Qt must be installed for envpool, got the error: {error} {remedy}.") from None

        return ProcgenVectorEnv([make(game) for game in self.games])

    @property
    def tests(self) -> Mapping[str, int]:
        """The three sets of levels, by their first level, which is also the number of the split."""
        return {str(first): first for first in TEST_LEVELS}

    def _levels(self, split: int) -> tuple[int, int]:
        """The first level of a split, and the number of levels."""
        if split in TEST_LEVELS:
            return split, LEVELS
        return (TEST_LEVELS[0], len(TEST_LEVELS) * LEVELS) if split == TEST else (0, self.levels)

    def summary(self, returns: Tensor) -> dict[str, float]:
        """Computes the mean return of each game, and the score."""
        by_game = {game: float(returns[:, n :: self.env_multiple].mean()) for n, game in enumerate(self.games)}
        bounds = BOUNDS[self.distribution]
        normalised = [(by_game[game] - bounds[game][0]) / (bounds[game][1] - bounds[game][0]) for game in self.games]
        return {"score": sum(normalised) / len(normalised), **by_game}


class ProcgenVectorEnv(VectorEnv):
    """Vector environments of envpool, with interleaved members."""

    def __init__(self, environments: list[Any]) -> None:
        self.environments = environments

    def reset(self) -> TimeStep:
        """Resets all environments."""
        parts = [environment.reset()[0] for environment in self.environments]
        return self._joined(
            [(observations, np.zeros(len(observations)), np.ones(len(observations), bool)) for observations in parts]
        )

    def step(self, actions: Tensor) -> TimeStep:
        """Takes a step. An environment that ends is reset at once, not by the next action as in envpool."""
        number, parts, finals = len(self.environments), [], []
        for n, environment in enumerate(self.environments):
            observations, reward, ended, cut, _ = environment.step(actions[n::number].to(torch.int32).numpy())
            limited = np.flatnonzero(cut & ~ended)
            finals.append((n + number * limited, observations[limited].copy()))
            over = np.flatnonzero(ended | cut).astype(np.int32)
            if len(over):
                observations = observations.copy()
                observations[over] = environment.reset(over)[0]
            parts.append((observations, reward, ended | cut))
        rows, last = (torch.from_numpy(np.concatenate(part)) for part in zip(*finals, strict=True))
        return self._joined(parts)._replace(truncated=Truncated(rows, last) if len(rows) else None)

    def close(self) -> None:
        """Closes all environments."""
        for environment in self.environments:
            environment.close()

    def _joined(self, parts: list[Any]) -> TimeStep:
        observations, reward, first = (
            np.stack(part, axis=1).reshape(-1, *part[0].shape[1:]) for part in zip(*parts, strict=True)
        )
        return TimeStep(
            torch.from_numpy(observations), torch.from_numpy(reward.astype(np.float32)), torch.from_numpy(first)
        )
