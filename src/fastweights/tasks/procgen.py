"""ProcGen: games whose levels are made by a program, one game or several side by side."""

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
from fastweights.tasks.kinds.environment import Cut, Environment, Observed, Worlds
from fastweights.tasks.sources.vector_environment import MissingPackage, needed

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
"""What random actions and the best agents come to, by game; those of hard games stand for memory, too."""

BOUNDS: dict[str, dict[str, tuple[float, float]]] = {"easy": EASY, "hard": HARD, "memory": HARD}
NEVER_SEEN = (1000, 1200, 1400)
"""First levels of the three sets for the test."""

LEVELS = 200
"""Levels of a set for the test."""

QT = ", and on Debian apt install libqt5core5a libqt5gui5"


@dataclass(frozen=True)
class Procgen(Environment):
    """a picture of 64 x 64 -> the change of the score, in levels of several games that are played side by side.

    Environment i plays game i mod N. An agent learns from the first levels, and validates on them. The test has levels
    that it has never seen, in three sets: 1000 to 1199, 1200 to 1399 and 1400 to 1599. The score is the mean over games
    of (R - R_min) / (R_max - R_min). With one game the main metric is the return.

    Args:
        games: N of them.
        distribution: "easy", "hard", or "memory", where worlds are larger and little of them is seen.
        levels: To learn from.

    Needs: the extra `procgen`, and on Debian the packages libqt5core5a and libqt5gui5.

    Source: Cobbe et al. 2020 (ProcGen), Appendix C; Irie et al. 2022, Sec. 4.3.
    """

    games: tuple[str, ...] = tuple(EASY)
    distribution: Distribution = "easy"
    levels: int = 200

    main_metric: ClassVar[Metric] = SCORE

    def __post_init__(self) -> None:
        require_name("distribution", self.distribution, get_args(Distribution))
        require(len(self.games) >= 1, "games", "at least one", len(self.games))
        for game in self.games:
            require_name("game", game, BOUNDS[self.distribution])
        require(self.levels >= 1, "levels", "at least 1", self.levels)
        if self.together == 1:
            object.__setattr__(self, "main_metric", RETURN)

    @property
    def pictures(self) -> bool:
        return True

    @property
    def shape(self) -> tuple[int, ...]:
        return 3, 64, 64

    @property
    def actions(self) -> Actions:
        return Discrete(15)

    @property
    def together(self) -> int:
        return len(self.games)

    def worlds(self, number: int, seed: int, split: int = TRAINING) -> Worlds:
        require(number % self.together == 0, "batch_size", f"a multiple of {self.together}, the games", number)
        first, levels = self._levels(split)
        envpool = needed("envpool", "procgen", QT)
        random = random_stream(seed, split)

        def made(game: str) -> Any:
            name = f"{game.capitalize()}{self.distribution.capitalize()}-v0"
            options = {"start_level": first, "num_levels": levels, "seed": int(random.integers(2**31 - number))}
            try:
                return envpool.make(name, "gymnasium", num_envs=number // self.together, num_threads=1, **options)
            except ImportError as error:
                remedy = f"pip install 'fastweights[procgen]'{QT}"
                raise MissingPackage(f"envpool must have Qt, got: {error} {remedy}.") from None

        return Games([made(game) for game in self.games])

    @property
    def tests(self) -> Mapping[str, int]:
        """The three sets of levels, by their first level, which is also the number of the split."""
        return {str(first): first for first in NEVER_SEEN}

    def _levels(self, split: int) -> tuple[int, int]:
        """The first level of a split, and the number of levels."""
        if split in NEVER_SEEN:
            return split, LEVELS
        return (NEVER_SEEN[0], len(NEVER_SEEN) * LEVELS) if split == TEST else (0, self.levels)

    def summary(self, returns: Tensor) -> dict[str, float]:
        """Returns by game, and the score."""
        by_game = {game: float(returns[:, n :: self.together].mean()) for n, game in enumerate(self.games)}
        bounds = BOUNDS[self.distribution]
        normalised = [(by_game[game] - bounds[game][0]) / (bounds[game][1] - bounds[game][0]) for game in self.games]
        return {"score": sum(normalised) / len(normalised), **by_game}


class Games(Worlds):
    """Vector environments of envpool, whose members take turns."""

    def __init__(self, made: list[Any]) -> None:
        self.made = made

    def begin(self) -> Observed:
        """Resets all of them."""
        parts = [one.reset()[0] for one in self.made]
        return self._joined([(seen, np.zeros(len(seen)), np.ones(len(seen), bool)) for seen in parts])

    def step(self, actions: Tensor) -> Observed:
        """One that has come to its end is reset at once, and not, as envpool would, by the next action."""
        number, parts, finals = len(self.made), [], []
        for n, one in enumerate(self.made):
            seen, reward, ended, cut, _ = one.step(actions[n::number].to(torch.int32).numpy())
            limited = np.flatnonzero(cut & ~ended)
            finals.append((n + number * limited, seen[limited].copy()))
            over = np.flatnonzero(ended | cut).astype(np.int32)
            if len(over):
                seen = seen.copy()
                seen[over] = one.reset(over)[0]
            parts.append((seen, reward, ended | cut))
        rows, last = (torch.from_numpy(np.concatenate(part)) for part in zip(*finals, strict=True))
        return self._joined(parts)._replace(cut=Cut(rows, last) if len(rows) else None)

    def close(self) -> None:
        """Ends what they run."""
        for one in self.made:
            one.close()

    def _joined(self, parts: list[Any]) -> Observed:
        seen, reward, first = (
            np.stack(part, axis=1).reshape(-1, *part[0].shape[1:]) for part in zip(*parts, strict=True)
        )
        return Observed(torch.from_numpy(seen), torch.from_numpy(reward.astype(np.float32)), torch.from_numpy(first))
