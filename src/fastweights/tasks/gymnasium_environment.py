"""Any environment of Gymnasium, by its id."""

from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

import numpy as np

from fastweights.errors import require
from fastweights.tasks._vector import VectorWorlds, found, needed, number_of_actions
from fastweights.tasks.kinds._random import TRAINING
from fastweights.tasks.kinds.environment import Environment, Worlds


@dataclass(frozen=True)
class GymnasiumEnvironment(Environment):
    """o_t, a_t -> r_t, o_{t + 1} of any environment whose actions are numbered.

    Bytes `[rows, columns, channels]` are pictures. Whatever else an environment shows is flattened to numbers, one of n
    things to n of them. A time limit ends an episode as its end does. An id may say where it is from, as in
    "popgym:popgym-RepeatPreviousEasy-v0" or "minigrid:MiniGrid-MemoryS7-v0".

    Args:
        id: Its id.
        options: What `gymnasium.make` is given beside it.

    Needs: the extra `rl`, and the package that an environment is from.

    Source: Towers et al. 2024 (Gymnasium).
    """

    id: str = "CartPole-v1"
    options: dict[str, Any] = field(default_factory=dict)

    @cached_property
    def _spaces(self) -> tuple[Any, Any]:
        """Of what is seen, flattened unless it is a picture, and of actions."""
        made = found(partial(needed("gymnasium", "rl").make, self.id, **self.options), self.id)
        spaces = self._flat(made).observation_space, made.action_space
        made.close()
        return spaces

    @property
    def pictures(self) -> bool:
        return _is_picture(self._spaces[0])

    @property
    def shape(self) -> tuple[int, ...]:
        rows, *rest = self._spaces[0].shape
        if not self.pictures:
            return (rows,)
        columns, channels = rest
        remedy = "Put a wrapper around it that resizes them."
        require(rows == columns, "pictures", "as high as wide", f"{rows} x {columns}", remedy)
        return channels, rows, columns

    @property
    def actions(self) -> int:
        return number_of_actions(self._spaces[1])

    def worlds(self, number: int, seed: int, split: int = TRAINING) -> Worlds:
        gymnasium = needed("gymnasium", "rl")
        autoreset = {"autoreset_mode": gymnasium.vector.AutoresetMode.SAME_STEP}
        made = gymnasium.make_vec(
            self.id, number, "sync", vector_kwargs=autoreset, wrappers=[self._flat], **self.options
        )
        return VectorWorlds(made, seed, split, _channels_first if self.pictures else _numbers)

    @staticmethod
    def _flat(made: Any) -> Any:
        from gymnasium.wrappers import FlattenObservation

        return made if _is_picture(made.observation_space) else FlattenObservation(made)


def _is_picture(space: Any) -> bool:
    return space.dtype == np.uint8 and len(space.shape) == 3


def _channels_first(seen: np.ndarray) -> np.ndarray:
    return seen.transpose(0, 3, 1, 2)


def _numbers(seen: np.ndarray) -> np.ndarray:
    return seen.astype(np.float32)
