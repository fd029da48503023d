"""Time limits: targets of an agent at a truncation and at the end of an episode."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from fastweights.experiments.reuse import without_hardware
from fastweights.models.agent import Agent
from fastweights.registry import EXPERIMENTS
from fastweights.tasks.gymnasium_environment import GymnasiumEnvironment
from fastweights.testing.tolerance import error, tolerance
from fastweights.training.distributed.hardware import make_fabric
from fastweights.training.rl.actor_critic_loss import rewards_of, rms_prop, update
from fastweights.training.rl.rollout_worker import RolloutWorker
from fastweights.training.rl.vtrace import vtrace
from fastweights.training.run_folder.runs_file import RUNS, read_runs
from fastweights.training.settings.actor_critic import ActorCritic

pytest.importorskip("gymnasium", reason="needs the extra rl")
RESULTS = Path(__file__).parents[1] / "docs" / "results"
B, T, GAMMA = 3, 11, 0.9
SETTINGS = ActorCritic(
    steps=1, batch_size=B, evaluate_every=1, rollout_length=T, learning_rate=3e-2, gamma=GAMMA, entropy_coef=0.0
)
CUT, ENDED = (
    GymnasiumEnvironment("my_environments:Clock"),
    GymnasiumEnvironment("my_environments:Clock", {"ends": True}),
)


def agent(layer="delta-net"):
    torch.manual_seed(0)
    return Agent((1,), 2, False, layer, d_model=8, num_heads=2, num_layers=1, d_ff=8, use_last_action=True)


def rollout_of(task, model, bootstrap=True, steps=T):
    stage = RolloutWorker(
        task.make_envs(B, 0), model.initial_state(B), task.actions.blank(B, steps), 0, bootstrap=bootstrap
    )
    return stage.act(model, steps)


def targets_of(rollout, values):
    discounts = GAMMA * ~rollout.first[:, 1:]
    same = torch.zeros_like(rollout.log_probability)
    return vtrace(same, discounts, rewards_of(rollout, SETTINGS), values[:, :-1], values[:, -1]).targets


def returns(rollout, values, finals, limit):
    """R_t = r_t + gamma R_{t+1}; r_t at an end; r_t + gamma V(last observation) at a truncation. Computed by a loop."""
    targets = torch.zeros(B, T)
    for b in range(B):
        following = float(values[b, T])
        for t in reversed(range(T)):
            if bool(rollout.first[b, t + 1]):
                following = float(finals[b, t]) if limit else 0.0
            following = float(rollout.reward[b, t + 1]) + GAMMA * following
            targets[b, t] = following
    return targets


def values_of_last_observations(model, rollout):
    """Values of whole episodes with their last observation, which a rollout does not contain. Its time is 3."""
    values = torch.zeros(B, T)
    for b in range(B):
        begin = 0
        for t in range(T):
            if not bool(rollout.first[b, t + 1]):
                continue
            part = slice(begin, t + 1)
            observation = torch.cat([rollout.observation[b, part], torch.tensor([[3.0]])])[None]
            reward = torch.cat([rollout.reward[b, part], rollout.reward[b, t + 1 : t + 2]])[None]
            action = torch.cat([rollout.action[b, part], rollout.action[b, t + 1 : t + 2]])[None]
            first = torch.tensor([[True] + [False] * (t + 1 - begin)])
            values[b, t] = model(observation, reward, action, first)[1][0, -1]
            begin = t + 1
    return values


@pytest.mark.parametrize("layer", ["delta-net", "recurrent-delta-net", "lstm", None])
def test_the_target_after_a_truncation_has_the_value_of_its_observation(layer):
    model = agent(layer)
    rollout = rollout_of(CUT, model)
    with torch.no_grad():
        finals = values_of_last_observations(model, rollout)
        values = model(*rollout.inputs, rollout.start)[1]
    assert int((finals != 0).sum()) == B * (T // 3)
    assert error(rollout.bootstrap_values, finals) <= tolerance(torch.float32).forward
    expected = returns(rollout, values, finals, limit=True)
    assert error(targets_of(rollout, values), expected) <= tolerance(torch.float32).forward


@pytest.mark.parametrize(("task", "bootstrap"), [(ENDED, True), (ENDED, False), (CUT, False)])
def test_the_target_after_an_end_is_the_reward(task, bootstrap):
    model = agent()
    rollout = rollout_of(task, model, bootstrap)
    assert not rollout.bootstrap_values.any()
    values = model(*rollout.inputs, rollout.start)[1].detach()
    expected = returns(rollout, values, torch.zeros(B, T), limit=False)
    assert error(targets_of(rollout, values), expected) <= tolerance(torch.float32).forward


@pytest.mark.parametrize(("bootstrap", "low", "high"), [(True, 7.0, 11.0), (False, 1.0, 3.0)])
def test_the_value_of_a_constant_reward_is_that_of_an_endless_episode(bootstrap, low, high):
    """1 / (1 - 0.9) = 10 for an agent that cannot observe time. Truncations as ends give at most 1 + 0.9 + 0.81."""
    task = GymnasiumEnvironment("my_environments:Clock", {"shows_time": False})
    torch.manual_seed(0)
    model = Agent((1,), 2, False, None, hidden=8)
    settings = replace(SETTINGS, bootstrap_time_limits=bootstrap)
    fabric = make_fabric(settings)
    shared, optimiser = fabric.setup(model, rms_prop(model, settings))
    stage = RolloutWorker(
        task.make_envs(B, 0), model.initial_state(B), task.actions.blank(B, 300 * 6), 0, bootstrap=bootstrap
    )
    for _ in range(300):
        rollout = stage.act(model, 6)
        update(fabric, shared, optimiser, rollout, settings)
    assert low < float(model(*rollout.inputs, rollout.start)[1].detach().mean()) < high


def test_the_last_observation_belongs_to_the_truncated_episode():
    envs = CUT.make_envs(2, 0)
    observed = [envs.reset(), *(envs.step(torch.zeros(2, dtype=torch.int64)) for _ in range(6))]
    assert [step.observation[0].item() for step in observed] == [0, 1, 2, 0, 1, 2, 0]
    assert [step.truncated is not None for step in observed] == [False, False, False, True, False, False, True]
    assert (observed[3].truncated.rows.tolist(), observed[3].truncated.observation.tolist()) == ([0, 1], [[3.0], [3.0]])
    ended = ENDED.make_envs(1, 0)
    ended.reset()
    assert [ended.step(torch.zeros(1, dtype=torch.int64)).truncated for _ in range(4)] == [None] * 4


def agents_of(name):
    experiment = EXPERIMENTS.load(name)
    for key, preset in experiment.presets.items():
        for model, column in preset.places:
            trial = experiment.trial(model, column, key)
            if isinstance(trial.training, ActorCritic):
                yield trial


@pytest.mark.parametrize("name", sorted(set(EXPERIMENTS.names()) - {"agent"}))
def test_presets_of_papers_treat_limits_as_published(name):
    assert not any(trial.training.bootstrap_time_limits for trial in agents_of(name))


@pytest.mark.parametrize("name", sorted({name for name in EXPERIMENTS.names() if [*agents_of(name)]} - {"agent"}))
def test_committed_runs_of_agents_have_the_current_settings(name):
    """A run without a newer setting has the earlier behaviour."""
    experiment = EXPERIMENTS.load(name)
    for run in (run for path in sorted((RESULTS / name).rglob(RUNS)) for run in read_runs(path)):
        stored = run.config()["config"]
        trial = experiment.trial(stored["model"], stored["column"], stored["preset"])
        trial = trial._replace(training=replace(trial.training, seed=stored["seed"]))
        assert (
            json.loads(json.dumps(without_hardware({"trial": trial.facts()})))["trial"]
            == without_hardware(stored)["trial"]
        ), run.path
