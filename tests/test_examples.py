"""Examples run, and compute the documented results."""

import importlib.util
import sys
from pathlib import Path

import pytest
import torch

import my_environments
from fastweights.testing.tolerance import error, tolerance

EXAMPLES = Path(__file__).parents[1] / "examples"


def example(name):
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def ppo():
    pytest.importorskip("gymnasium", reason="needs the extra rl")
    return example("ppo_any_memory")


def settings(ppo, **changes):
    flags = {"environments": 4, "steps": 12, "updates": 2, "d_model": 8, **changes}
    return ppo.parsed([word for name, value in flags.items() for word in (f"--{name.replace('_', '-')}", str(value))])


@pytest.mark.parametrize("layer", ["delta-net", "recurrent-delta-net", "srwm", "lstm", "softmax-attention"])
def test_first_pass_of_ppo_computes_the_policy_of_the_rollout(ppo, layer):
    """From the initial state alone, over ends of episodes, for some of the environments."""
    options = settings(ppo, layer=layer)
    torch.manual_seed(0)
    world = ppo.World(options)
    agent = ppo.Agent(world.features, world.actions, options)
    world.state = agent.memory.initial_state(options.environments)
    ppo.act(agent, world, options)
    rollout = ppo.act(agent, world, options)
    assert bool(rollout.first[:, 1:].any()), "no episode began within the rollout"
    for part in ppo.minibatches(rollout, 2):
        policy, value, _ = agent(part.observation, part.first, part.start)
        assert error(policy.log_prob(part.action), part.log_probability) <= tolerance(torch.float32).forward
        assert error(value, part.target - part.advantage) <= tolerance(torch.float32).forward


def test_time_limit_bootstraps_from_the_last_observation(ppo):
    """The clock is truncated after three steps with the observation 3: the last target is 1 + gamma V(3)."""
    if "Clock-v0" not in ppo.gymnasium.registry:
        ppo.gymnasium.register("Clock-v0", my_environments.Clock)
    options = settings(ppo, id="Clock-v0", steps=3)
    torch.manual_seed(0)
    world = ppo.World(options)
    agent = ppo.Agent(world.features, world.actions, options)
    world.state = agent.memory.initial_state(options.environments)
    rollout = ppo.act(agent, world, options)
    observations = torch.cat([rollout.observation, torch.full((4, 1, 1), 3.0)], 1)
    first = torch.cat([rollout.first, torch.zeros(4, 1, dtype=torch.bool)], 1)
    with torch.no_grad():
        value = agent(observations, first, rollout.start)[1]
    assert error(rollout.target[:, -1], 1 + options.gamma * value[:, -1]) <= tolerance(torch.float32).forward


def test_advantages_equal_sums_over_the_rest_of_an_episode(ppo):
    options = settings(ppo)
    draw = torch.Generator().manual_seed(0)
    reward, value = (torch.randn(3, T, generator=draw, dtype=torch.float64) for T in (9, 10))
    ended = torch.rand(3, 9, generator=draw) < 0.3
    expected = torch.zeros_like(reward)
    for b in range(3):
        for t in range(9):
            weight = 1.0
            for s in range(t, 9):
                next_value = 0.0 if ended[b, s] else options.gamma * value[b, s + 1]
                expected[b, t] += weight * (reward[b, s] + next_value - value[b, s])
                weight *= 0.0 if ended[b, s] else options.gamma * options.trace
    assert error(ppo.advantages(reward, ended, value, options), expected) <= tolerance(torch.float64).forward


def test_ppo_with_memory_learns_the_t_maze(ppo):
    options = settings(ppo, environments=32, steps=27, updates=40, d_model=32)
    assert sum(ppo.train(options)[-5:]) / 5 > 0.9
