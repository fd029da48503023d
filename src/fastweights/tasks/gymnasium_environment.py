"""Any environment of Gymnasium: by its ID, or a class from code of the user."""

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
from fastweights.tasks.kinds.environment import Environment, VectorEnv
from fastweights.tasks.sources.spaces import convert_space
from fastweights.tasks.sources.vector_environment import GymnasiumVectorEnv, MissingPackage, import_optional


class Spaces(NamedTuple):
    """The arguments of an agent: shape and kind of an observation, and the action space."""

    shape: tuple[int, ...]
    from_pixels: bool
    actions: Actions


@dataclass(frozen=True)
class GymnasiumEnvironment(Environment):
    """Any environment of Gymnasium.

    Input -> target: `o_t, a_t -> r_t, o_(t+1)`.

    Observations: bytes `[side, side, channels]` or `[channels, side, side]` are images. Other observations are
    flattened to numbers, a discrete one to a one-hot vector. Actions: Discrete, MultiDiscrete, MultiBinary or Box. A
    time limit truncates an episode; its last observation is stored, for the bootstrapped value.
    An ID may name the package that registers it, as in "popgym:popgym-RepeatPreviousEasy-v0" or
    "minigrid:MiniGrid-MemoryS7-v0". Code of the user is MODULE:NAME or PATH.py:NAME, where NAME is a class of
    environments, a function that returns one, or an ID that the module registers.

    Args:
        id: ID of the environment, or import path.
        options: Arguments of `gymnasium.make` or of the class.

    Needs: the extra `rl`, and the package of the environment.

    Source: Towers et al. 2024 (Gymnasium).
    """

    id: str = "CartPole-v1"
    options: dict[str, Any] = field(default_factory=dict)

    @cached_property
    def _spaces(self) -> Spaces:
        environment = self._build()
        space, actions = (
            environment.observation_space,
            convert_space(getattr(environment, "action_space", None)).actions,
        )
        environment.close()
        from_pixels = _is_image(space)
        return Spaces(_image_shape(space.shape) if from_pixels else tuple(space.shape), from_pixels, actions)

    @property
    def from_pixels(self) -> bool:
        return self._spaces.from_pixels

    @property
    def shape(self) -> tuple[int, ...]:
        return self._spaces.shape

    @property
    def actions(self) -> Actions:
        return self._spaces.actions

    def facts(self) -> dict[str, Any]:
        """Observations and action space, so that an agent can be loaded where its environment is not installed."""
        shape, from_pixels, actions = self._spaces
        return {"shape": list(shape), "from_pixels": from_pixels, "actions": actions.facts()}

    def restored_from(self, facts: Mapping[str, Any]) -> Environment:
        if not facts:
            return self
        shape, from_pixels, actions = (facts.get(name) for name in ("shape", "from_pixels", "actions"))
        valid = isinstance(shape, list) and all(type(size) is int and size > 0 for size in shape)
        valid &= isinstance(from_pixels, bool) and isinstance(actions, dict)
        require(valid, "task", "an object with the shape of observations and the action space", repr(dict(facts))[:80])
        task = copy(self)
        vars(task)["_spaces"] = Spaces(tuple(shape or ()), bool(from_pixels), read_actions(actions or {}))
        return task

    def make_envs(self, number: int, seed: int, split: int = TRAINING) -> VectorEnv:
        vector = import_optional("gymnasium", "rl").vector
        environments = vector.SyncVectorEnv([self._build] * number, autoreset_mode=vector.AutoresetMode.SAME_STEP)
        return GymnasiumVectorEnv(environments, seed, split, _channels_first if self.from_pixels else _numbers)

    def _build(self) -> Any:
        """Builds one environment, whose observations are images or vectors."""
        gymnasium = import_optional("gymnasium", "rl")
        environment = self._make()
        remedy = "Name a subclass of gymnasium.Env, or a function that returns an instance of one."
        require(isinstance(environment, gymnasium.Env), "id", "an environment of Gymnasium", repr(self.id), remedy)
        space = getattr(environment, "observation_space", None)
        if _is_image(space):
            return environment
        remedy = "Wrap the environment so that its observations are a Box."
        flat = space is not None and space.is_np_flattenable
        require(flat, "observation space", "a space with a fixed number of values", space, remedy)
        return gymnasium.wrappers.FlattenObservation(environment)

    @cached_property
    def _make(self) -> Callable[[], Any]:
        """The function that creates the environment without wrappers."""
        module_name, _, name = self.id.rpartition(":")
        member = _member(self.id, name) if module_name else None
        if member is None:
            return partial(_registered, self.id, name, self.options)
        try:
            inspect.signature(member).bind(**self.options)
        except TypeError as error:
            raise InputError(f"id must be an environment that needs no arguments, got '{self.id}': {error}.") from None
        return partial(member, **self.options)

    def __getstate__(self) -> dict[str, Any]:
        """State for another process, which imports the code of the user itself."""
        return {name: value for name, value in vars(self).items() if name != "_make"}


def _member(address: str, name: str) -> Any:
    """The object of this name in a module; None if there is none, since the module may register an environment."""
    try:
        module = module_of(address)
    except InputError as error:
        if isinstance(error.__cause__, ModuleNotFoundError):
            message = f"id must be an environment of an installed package, got '{address}': {error.__cause__}."
            raise MissingPackage(message) from None
        raise
    member = vars(module).get(name)
    require(member is None or callable(member), "id", "an environment class", f"{address!r}, another object")
    return member


def _registered(address: str, name: str, options: dict[str, Any]) -> Any:
    """Creates an environment by its ID in Gymnasium; `InputError` in one line if there is none of that ID."""
    gymnasium = import_optional("gymnasium", "rl")
    try:
        return gymnasium.make(name, **options)
    except ModuleNotFoundError as error:
        raise MissingPackage(f"id must be an environment of an installed package, got '{address}': {error}.") from None
    except gymnasium.error.Error as error:
        remedy = f"Name the code that has or registers it: MODULE:{name} or PATH.py:{name} (--env)."
        reason = " ".join(str(error).split()).rstrip(".")
        raise InputError(f"id must be registered in Gymnasium, got '{address}': {reason}. {remedy}") from None


def _is_image(space: Any) -> bool:
    return getattr(space, "dtype", None) == np.uint8 and space.shape is not None and len(space.shape) == 3


def _image_shape(shape: tuple[int, ...]) -> tuple[int, ...]:
    """(channels, side, side) of images whose channels come last, or first, as in stacks of grey frames."""
    rows, columns, channels = shape
    remedy = "Wrap the environment so that it resizes them."
    require(columns in (rows, channels), "observations", "square images", f"{rows} x {columns}", remedy)
    return (channels, rows, columns) if rows == columns else shape


def _channels_first(images: np.ndarray) -> np.ndarray:
    """Moves channels first, `[B, channels, side, side]`, if they come last."""
    return images.transpose(0, 3, 1, 2) if images.shape[1] == images.shape[2] else images


def _numbers(values: np.ndarray) -> np.ndarray:
    return values.astype(np.float32)
