"""Conversion of action spaces and actions between Gymnasium and this library."""

from typing import Any, NamedTuple

import numpy as np
from torch import Tensor

from fastweights.core.action_spaces import Actions, Box, Discrete, MultiDiscrete
from fastweights.core.errors import require


class ConvertedSpace(NamedTuple):
    """An action space, and the conversion of its actions for an environment."""

    actions: Actions
    start: Any  # the smallest action of a discrete space
    shape: tuple[int, ...]
    dtype: Any

    def convert(self, actions: Tensor) -> np.ndarray:
        """Converts actions of an agent `[B, *actions.shape]` for the environment, `[B, *shape]`."""
        if isinstance(self.actions, Box):
            values = self.actions.bounded(actions).numpy()
            values = values if np.issubdtype(self.dtype, np.floating) else values.round()
        else:
            values = actions.numpy()
        return (values.reshape(len(values), *self.shape) + self.start).astype(self.dtype)


def convert_space(space: Any) -> ConvertedSpace:
    """The action space of an environment of Gymnasium.

    Raises:
        InputError: The space is not Discrete, MultiDiscrete, MultiBinary or Box.
    """
    kind, remedy = type(space).__name__, "Wrap the environment so that its action space changes."
    supported = kind in ("Discrete", "MultiDiscrete", "MultiBinary", "Box")
    require(supported, "action space", "Discrete, MultiDiscrete, MultiBinary or Box", space, remedy)
    require(int(np.prod(space.shape)) > 0, "action space", "a space with at least one value", space, remedy)
    return ConvertedSpace(_actions(kind, space), getattr(space, "start", 0), tuple(space.shape), space.dtype)


def _actions(kind: str, space: Any) -> Actions:
    match kind:
        case "Discrete":
            return Discrete(int(space.n))
        case "MultiDiscrete":
            return MultiDiscrete(tuple(map(int, space.nvec.flat)))
        case "MultiBinary":
            return MultiDiscrete((2,) * int(np.prod(space.shape)))
    low, high = (tuple(map(float, bound.flat)) for bound in (space.low, space.high))
    return Box(low, high)
