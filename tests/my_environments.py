"""User-defined environments: small ones of every action space, with a time limit, and faulty ones."""

import gymnasium
import numpy as np
from gymnasium import spaces


class Copy(gymnasium.Env):
    """An observation of three signs. The reward is the fraction of signs that the action repeats."""

    observation_space = spaces.Box(-1.0, 1.0, (3,), np.float32)
    action_space: spaces.Space = spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time = 0
        return self._observe(), {}

    def step(self, action):
        reward = self.reward(action)
        self.time += 1
        return self._observe(), reward, self.time == 4, False, {}

    def reward(self, action):
        return float((action == 1) == (self.signs[0] > 0))

    def _observe(self):
        self.signs = self.np_random.choice([-1, 1], 3)
        return self.signs.astype(np.float32)


class CopyBits(Copy):
    action_space = spaces.MultiBinary(3)

    def reward(self, action):
        assert self.action_space.contains(action)
        return float((action == (self.signs > 0)).mean())


class CopyChoices(Copy):
    """One of three options for the first sign and one of five for the second. All other options are wrong."""

    action_space = spaces.MultiDiscrete([3, 5], start=[1, 0])

    def reward(self, action):
        assert self.action_space.contains(action)
        return float((action - [1, 0] == (self.signs[:2] > 0)).mean())


class CopyNumbers(Copy):
    """Numbers from 0 to 10 for the first two signs (2 for -1, 8 for 1), and an unbounded number for the third."""

    action_space = spaces.Box(np.array([0, 0, -np.inf], np.float32), np.array([10, 10, np.inf], np.float32))

    def reward(self, action):
        assert self.action_space.contains(action)
        target = np.where(self.signs > 0, [8, 8, 1], [2, 2, -1])
        return float(-np.abs((action - target) / [5, 5, 1]).mean())


class Clock(gymnasium.Env):
    """A reward of 1 per step. An episode is truncated after three steps, or terminates after four if `ends`."""

    observation_space = spaces.Box(-10.0, 10.0, (1,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self, ends: bool = False, shows_time: bool = True) -> None:
        self.ends, self.shows_time = ends, shows_time

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time = 0
        return self._observe(), {}

    def step(self, action):
        self.time += 1
        return self._observe(), 1.0, self.ends and self.time == 4, not self.ends and self.time == 3, {}

    def _observe(self):
        return np.full(1, float(self.time * self.shows_time), np.float32)


class Broken(Copy):
    """One number that is not finite, in the third observation or reward, or in the last observation."""

    observation_space = spaces.Box(-np.inf, np.inf, (3,), np.float32)

    def __init__(self, part: str = "observation", value: float = np.nan) -> None:
        self.part, self.value = part, value

    def step(self, action):
        observation, reward, _, _, info = super().step(action)
        if self.time == 2 and self.part == "observation":
            observation[1] = self.value
        if self.time == 2 and self.part == "reward":
            reward = self.value
        if self.time == 4 and self.part == "last observation of an episode":
            observation[1] = self.value
        return observation, reward, False, self.time == 4, info


class Mapped(Copy):
    """Observations by name, one of them an image."""

    observation_space = spaces.Dict(
        {"signs": Copy.observation_space, "picture": spaces.Box(0, 255, (2, 2, 3), np.uint8), "one": spaces.Discrete(3)}
    )

    def _observe(self):
        return {"signs": super()._observe(), "picture": np.zeros((2, 2, 3), np.uint8), "one": 2}


class Networked(Copy):
    """Observations with any number of nodes."""

    observation_space = spaces.Graph(spaces.Box(-1.0, 1.0, (2,)), None)


class Paired(Copy):
    """Two actions in a tuple."""

    action_space = spaces.Tuple([spaces.Discrete(2), spaces.Discrete(2)])


class Seen(Copy):
    """Square images of bytes."""

    def __init__(self, shape=(7, 7, 3)) -> None:
        self.observation_space = spaces.Box(0, 255, tuple(shape), np.uint8)

    def _observe(self):
        super()._observe()
        return np.arange(np.prod(self.observation_space.shape)).astype(np.uint8).reshape(self.observation_space.shape)


class Spaceless(gymnasium.Env):
    """An environment without spaces."""


class Named(Copy):
    """An environment that needs an argument."""

    def __init__(self, name: str) -> None:
        self.name = name


def wrapped():
    """An environment in a wrapper."""
    return gymnasium.wrappers.TimeLimit(Copy(), 3)


def nothing():
    """A function that returns no environment."""
    return 3


NUMBER = 3
if "Copied-v0" not in gymnasium.registry:
    gymnasium.register("Copied-v0", Copy)
