"""Proximal policy optimisation with any memory, in one file: to read, and to take for your own.

    pip install torch && pip install "fastweights[rl]"
    python examples/ppo_any_memory.py --layer delta-net
    python examples/ppo_any_memory.py --layer lstm --id popgym:popgym-RepeatPreviousEasy-v0

`--layer` is any of `fastweights list layers`, or a rule of your own, `./mine.py:my_rule`. Without an id the task is a
sign, some steps of nothing and a turn: a return of 1 is every turn right, 0.5 what guessing comes to.

What is particular to a memory, and all of it: the state before the first step of a rollout is kept, and no other; every
pass over the rollout begins at it again; a minibatch is some of the environments over all steps, with their states;
`reset` tells the scan where episodes begin. Time is neither shuffled nor cut.

Source: Schulman et al. 2017 (PPO), Eq. 7 and 9; Schulman et al. 2016 (advantages), Eq. 16.
"""

import argparse
from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

import gymnasium
import numpy as np
import torch
from torch import Tensor, nn
from torch.distributions import Categorical

from fastweights.layers import make_layer


@dataclass
class Settings:
    """Every one is a flag."""

    id: str = "LongSign-v0"
    layer: str = "delta-net"
    d_model: int = 32
    num_heads: int = 2
    seed: int = 0
    environments: int = 32
    steps: int = 32  # of every environment, between two updates
    updates: int = 100
    epochs: int = 4  # passes over a rollout
    minibatches: int = 4  # in which the environments are divided
    learning_rate: float = 3e-3  # at the beginning, from where it falls to nothing in a straight line
    gamma: float = 0.99
    trace: float = 0.95  # lambda of the advantages
    clip_coef: float = 0.2  # of the ratio of probabilities
    value_coef: float = 0.5
    entropy_coef: float = 0.01
    largest_norm: float = 0.5  # of the gradient


class Sign(gymnasium.Env):
    """A sign, some steps of nothing, and a turn that should be as the sign said."""

    observation_space = gymnasium.spaces.Box(-1.0, 1.0, (1,))
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, blank: int = 8) -> None:
        self.blank = blank

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        """A new sign."""
        super().reset(seed=seed)
        self.sign, self.time = int(self.np_random.integers(2)), 0
        return np.array([2 * self.sign - 1], np.float32), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Only the last action counts."""
        self.time += 1
        over = self.time > self.blank
        return np.zeros(1, np.float32), float(over and action == self.sign), over, False, {}


gymnasium.register("LongSign-v0", Sign)


class Agent(nn.Module):
    """pi(a_t) and V_t, linear in x_t + memory(x)_t, with x_t = relu(W o_t + b)."""

    def __init__(self, observation: int, actions: int, settings: Settings) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(observation, settings.d_model), nn.ReLU())
        self.memory = make_layer(settings.layer, settings.d_model, settings.num_heads)
        self.actor, self.critic = nn.Linear(settings.d_model, actions), nn.Linear(settings.d_model, 1)

    def forward(self, observation: Tensor, first: Tensor, state: Any) -> tuple[Categorical, Tensor, Any]:
        """From `observation` `[B, T, F]`, `first` `[B, T]` and the state before step 1; acting is T = 1."""
        x = self.encoder(observation)
        y, state = self.memory(x, state, reset=first)
        return Categorical(logits=self.actor(x + y)), self.critic(x + y)[..., 0], state


class Rollout(NamedTuple):
    """Some steps of every environment, `[B, T]`, and the state before the first of them."""

    observation: Tensor  # [B, T, F]
    first: Tensor  # whether an episode begins
    action: Tensor
    log_probability: Tensor  # of the action, when it was taken
    advantage: Tensor
    target: Tensor  # what the value should have been
    start: Any


class World:
    """The environments, and the state of an agent in them."""

    def __init__(self, settings: Settings) -> None:
        # The time step that ends an episode also begins the next one: the next observation is its first.
        same_step = {"autoreset_mode": gymnasium.vector.AutoresetMode.SAME_STEP}
        flat = [gymnasium.wrappers.FlattenObservation]
        self.made = gymnasium.make_vec(
            settings.id, settings.environments, vectorization_mode="sync", vector_kwargs=same_step, wrappers=flat
        )
        self.features, self.actions = self.made.single_observation_space.shape[0], self.made.single_action_space.n
        observation, _ = self.made.reset(seed=settings.seed)
        self.observation, self.first = as_numbers(observation), torch.ones(settings.environments, dtype=torch.bool)
        self.state: Any = None  # of the agent that comes
        self.returns = torch.zeros(settings.environments)
        self.finished: list[float] = []

    def step(self, action: Tensor) -> Tensor:
        """The rewards of all environments for an action. Episodes that a time limit ended are in `cut` and `last`."""
        observation, reward, ended, limited, info = self.made.step(action.numpy())
        rows = np.flatnonzero(limited & ~ended)
        self.cut = torch.from_numpy(rows)
        self.last = as_numbers(np.array([info["final_obs"][row] for row in rows]))
        paid = torch.from_numpy(reward).float()
        self.observation, self.first = as_numbers(observation), torch.from_numpy(ended | limited)
        self.returns += paid
        self.finished += self.returns[self.first].tolist()
        self.returns[self.first] = 0
        return paid


def as_numbers(observation: np.ndarray) -> Tensor:
    """A copy: environments may write into the same array again."""
    return torch.tensor(observation, dtype=torch.float32)


@torch.no_grad()
def act(agent: Agent, world: World, settings: Settings) -> Rollout:
    """Acts for the steps of a rollout; only the state before them is kept."""
    start, steps, rewards, ends = world.state, [], [], []
    for _ in range(settings.steps):
        observation, first = world.observation, world.first
        policy, value, world.state = agent(observation[:, None], first[:, None], world.state)
        action = policy.sample()
        rewards.append(world.step(action[:, 0]))
        if len(world.cut):
            # The task could go on: the value of the last observation stands for the rewards that would follow.
            starts, state = torch.zeros(len(world.cut), 1, dtype=torch.bool), world.state.select(world.cut)
            rewards[-1][world.cut] += settings.gamma * agent(world.last[:, None], starts, state)[1][:, 0]
        ends.append(world.first)
        steps.append((observation, first, action[:, 0], policy.log_prob(action)[:, 0], value[:, 0]))
    observation, first, action, log_probability, value = (torch.stack(parts, 1) for parts in zip(*steps, strict=True))
    _, last, _ = agent(world.observation[:, None], world.first[:, None], world.state)
    advantage = advantages(torch.stack(rewards, 1), torch.stack(ends, 1), torch.cat([value, last], 1), settings)
    return Rollout(observation, first, action, log_probability, advantage, advantage + value, start)


def advantages(reward: Tensor, ended: Tensor, value: Tensor, settings: Settings) -> Tensor:
    """A_t = delta_t + gamma lambda A_{t+1}, delta_t = r_t + gamma V_{t+1} - V_t; where an episode ends, gamma = 0.

    `value` `[B, T + 1]` has one more step than the others.
    """
    discount = settings.gamma * (~ended).to(value)
    delta = reward + discount * value[:, 1:] - value[:, :-1]
    advantages, following = torch.empty_like(delta), torch.zeros_like(delta[:, 0])
    for t in reversed(range(delta.shape[1])):
        advantages[:, t] = following = delta[:, t] + discount[:, t] * settings.trace * following
    return advantages


def minibatches(rollout: Rollout, number: int) -> Iterator[Rollout]:
    """The environments in random groups, each with all its steps and the states that these began with."""
    *tensors, start = rollout
    for some in torch.randperm(len(rollout.observation)).chunk(number):
        yield Rollout(*(tensor[some] for tensor in tensors), start.select(some))


def loss(agent: Agent, part: Rollout, settings: Settings) -> Tensor:
    """- min(r A, clip(r, 1 - eps, 1 + eps) A) + c_v / 2 (V - target)^2 - c_e H(pi), the mean over steps."""
    policy, value, _ = agent(part.observation, part.first, part.start)  # one scan over the rollout, resets inside
    ratio = (policy.log_prob(part.action) - part.log_probability).exp()
    advantage = (part.advantage - part.advantage.mean()) / (part.advantage.std() + 1e-8)
    gain = torch.min(ratio * advantage, ratio.clamp(1 - settings.clip_coef, 1 + settings.clip_coef) * advantage)
    error = (value - part.target).square() / 2
    return (settings.value_coef * error - gain - settings.entropy_coef * policy.entropy()).mean()


def train(settings: Settings) -> list[float]:
    """The mean return of the episodes that ended in every rollout."""
    torch.manual_seed(settings.seed)
    world = World(settings)
    agent = Agent(world.features, world.actions, settings)
    world.state = agent.memory.initial_state(settings.environments)
    optimiser = torch.optim.Adam(agent.parameters(), settings.learning_rate, eps=1e-5)
    # Once all is right, advantages are noise, which to normalise makes large: the rate must be small by then.
    falling = torch.optim.lr_scheduler.LinearLR(optimiser, 1.0, 0.0, settings.updates)
    curve = []
    for update in range(1, settings.updates + 1):
        rollout = act(agent, world, settings)
        for _ in range(settings.epochs):
            for part in minibatches(rollout, settings.minibatches):
                optimiser.zero_grad()
                loss(agent, part, settings).backward()
                nn.utils.clip_grad_norm_(agent.parameters(), settings.largest_norm)
                optimiser.step()
        falling.step()
        curve.append(float(np.mean(world.finished or [np.nan])))
        print(f"step {update * settings.environments * settings.steps:>9,}  return {curve[-1]:.3f}", flush=True)
        world.finished.clear()
    return curve


def parsed(arguments: list[str] | None = None) -> Settings:
    """The settings that the flags say."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for field in fields(Settings):
        flag = f"--{field.name.replace('_', '-')}"
        parser.add_argument(flag, type=field.type, default=field.default, help="default: %(default)s")
    return Settings(**vars(parser.parse_args(arguments)))


if __name__ == "__main__":
    train(parsed())
