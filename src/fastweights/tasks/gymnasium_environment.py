"""Any environment of Gymnasium: by its ID, or a class of the user's own code."""

import inspect
from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any, NamedTuple

import numpy as np

from fastweights.core.action_spaces import Actions, read_actions
from fastweights.core.errors import InputError, require
from fastweights.core.import_path import module_of
from fastweights.tasks.kinds._random import TRAINING
from fastweights.tasks.kinds.environment import Environment, Worlds
from fastweights.tasks.sources.spaces import given
from fastweights.tasks.sources.vector_environment import MissingPackage, VectorWorlds, needed


class Spaces(NamedTuple):
    """The arguments of an agent: shape and kind of an observation, and the action space."""

    shape: tuple[int, ...]
    pictures: bool
    actions: Actions


@dataclass(frozen=True)
class GymnasiumEnvironment(Environment):
    """o_t, a_t -> r_t, o_{t + 1} of any environment of Gymnasium.

    Observations: bytes `[side, side, channels]` or `[channels, side, side]` are pictures. Other observations are
    flattened to numbers, a discrete one to a one-hot vector. Actions: Discrete, MultiDiscrete, MultiBinary or Box. A
    time limit ends an episode by truncation; its last observation is kept, for the value that an agent expects of it.

    An ID may name the package that registers it, as in "popgym:popgym-RepeatPreviousEasy-v0" or
    "minigrid:MiniGrid-MemoryS7-v0". Code of the user's own is MODULE:NAME or PATH.py:NAME, where NAME is a class of
    environments, a function that makes one, or an ID that the module registers.

    Args:
        id: The environment.
        options: What `gymnasium.make`, or the class, is given beside it.

    Needs: the extra `rl`, and the package that an environment is from.

    Source: Towers et al. 2024 (Gymnasium).
    """

    id: str = "CartPole-v1"
    options: dict[str, Any] = field(default_factory=dict)

    @cached_property
    def _spaces(self) -> Spaces:
        made = self._made()
        space, actions = made.observation_space, given(getattr(made, "action_space", None)).actions
        made.close()
        pictures = _is_picture(space)
        return Spaces(_picture_shape(space.shape) if pictures else tuple(space.shape), pictures, actions)

    @property
    def pictures(self) -> bool:
        return self._spaces.pictures

    @property
    def shape(self) -> tuple[int, ...]:
        return self._spaces.shape

    @property
    def actions(self) -> Actions:
        return self._spaces.actions

    def facts(self) -> dict[str, Any]:
        """Observations and action space, so that an agent can be loaded where its environment is not installed."""
        shape, pictures, actions = self._spaces
        return {"shape": list(shape), "pictures": pictures, "actions": actions.facts()}

    def known_by(self, facts: Mapping[str, Any]) -> Environment:
        if not facts:
            return self
        shape, pictures, actions = (facts.get(name) for name in ("shape", "pictures", "actions"))
        known = isinstance(shape, list) and all(type(size) is int and size > 0 for size in shape)
        known &= isinstance(pictures, bool) and isinstance(actions, dict)
        require(known, "task", "one with the shape of observations and the action space", repr(dict(facts))[:80])
        task = copy(self)
        vars(task)["_spaces"] = Spaces(tuple(shape or ()), bool(pictures), read_actions(actions or {}))
        return task

    def worlds(self, number: int, seed: int, split: int = TRAINING) -> Worlds:
        vector = needed("gymnasium", "rl").vector
        made = vector.SyncVectorEnv([self._made] * number, autoreset_mode=vector.AutoresetMode.SAME_STEP)
        return VectorWorlds(made, seed, split, _channels_first if self.pictures else _numbers)

    def _made(self) -> Any:
        """One environment, whose observations are a picture or a vector."""
        gymnasium = needed("gymnasium", "rl")
        made = self._make()
        remedy = "Name a subclass of gymnasium.Env, or a function that returns an instance of one."
        require(isinstance(made, gymnasium.Env), "id", "an environment of Gymnasium", repr(self.id), remedy)
        space = getattr(made, "observation_space", None)
        if _is_picture(space):
            return made
        remedy = "Put a wrapper around the environment that makes a Box of its observations."
        flat = space is not None and space.is_np_flattenable
        require(flat, "observation space", "one of a fixed number of numbers", space, remedy)
        return gymnasium.wrappers.FlattenObservation(made)

    @cached_property
    def _make(self) -> Callable[[], Any]:
        """Makes the environment without wrappers of ours."""
        home, _, name = self.id.rpartition(":")
        own = _member(self.id, name) if home else None
        if own is None:
            return partial(_registered, self.id, name, self.options)
        try:
            inspect.signature(own).bind(**self.options)
        except TypeError as error:
            raise InputError(f"id must be an environment that needs no arguments, got '{self.id}': {error}.") from None
        return partial(own, **self.options)

    def __getstate__(self) -> dict[str, Any]:
        """For another process, which finds the user's code itself."""
        return {name: value for name, value in vars(self).items() if name != "_make"}


def _member(address: str, name: str) -> Any:
    """The object of a module under a name; None if there is none: the module may have registered an environment."""
    try:
        module = module_of(address)
    except InputError as error:
        if isinstance(error.__cause__, ModuleNotFoundError):
            told = f"id must be of a package that is installed, got '{address}': {error.__cause__}."
            raise MissingPackage(told) from None
        raise
    found = vars(module).get(name)
    require(found is None or callable(found), "id", "a class of environments", f"{address!r}, another object")
    return found


def _registered(address: str, name: str, options: dict[str, Any]) -> Any:
    """An environment by the ID that Gymnasium knows; `InputError` in one line if it knows none of that name."""
    gymnasium = needed("gymnasium", "rl")
    try:
        return gymnasium.make(name, **options)
    except ModuleNotFoundError as error:
        raise MissingPackage(f"id must be of a package that is installed, got '{address}': {error}.") from None
    except gymnasium.error.Error as error:
        remedy = f"Name the code that has or registers it: MODULE:{name} or PATH.py:{name} (--env)."
        said = " ".join(str(error).split()).rstrip(".")
        raise InputError(f"id must be one that Gymnasium knows, got '{address}': {said}. {remedy}") from None


def _is_picture(space: Any) -> bool:
    return getattr(space, "dtype", None) == np.uint8 and space.shape is not None and len(space.shape) == 3


def _picture_shape(shape: tuple[int, ...]) -> tuple[int, ...]:
    """(channels, side, side) of pictures whose channels come last, or first, as in stacks of grey frames."""
    rows, columns, channels = shape
    remedy = "Put a wrapper around it that resizes them."
    require(columns in (rows, channels), "pictures", "as high as wide", f"{rows} x {columns}", remedy)
    return (channels, rows, columns) if rows == columns else shape


def _channels_first(seen: np.ndarray) -> np.ndarray:
    """Pictures `[B, channels, side, side]` of those that an environment shows."""
    return seen.transpose(0, 3, 1, 2) if seen.shape[1] == seen.shape[2] else seen


def _numbers(seen: np.ndarray) -> np.ndarray:
    return seen.astype(np.float32)
