"""Agents: their states, their learning, V-trace, and the end of their runs."""

import os
import signal
import sys
from dataclasses import replace

import pytest
import torch

from fastweights import InputError
from fastweights.core.tensor_file import read_tensor_file
from fastweights.experiments.experiment import Trial
from fastweights.experiments.run_trial import run_trial
from fastweights.inspect import analyze_episode
from fastweights.layers import make_layer
from fastweights.models.agent import Agent
from fastweights.recipes.irie2021 import _atari as atari
from fastweights.recipes.irie2022 import _procgen as procgen
from fastweights.state import to
from fastweights.tasks.catch import Catch, CatchVectorEnv
from fastweights.tasks.t_maze import TMaze
from fastweights.testing.tolerance import error, tolerance
from fastweights.training.distributed.hardware import make_fabric
from fastweights.training.distributed.ranks import share
from fastweights.training.faults import first_fault
from fastweights.training.loops import actor_critic
from fastweights.training.loops.actor_critic import VALIDATED, measure
from fastweights.training.progress import Interrupted
from fastweights.training.rl.actor_critic_loss import objective, rms_prop, update
from fastweights.training.rl.rollout_worker import RolloutWorker
from fastweights.training.rl.vtrace import vtrace
from fastweights.training.run_folder.run import Run
from fastweights.training.settings.actor_critic import ActorCritic

SMALL = {"d_model": 8, "num_heads": 2, "num_layers": 1, "d_ff": 8}
B, T = 3, 7
SETTINGS = ActorCritic(steps=6, batch_size=4, evaluate_every=3, rollout_length=5, learning_rate=1e-3, episodes=6)
TRIAL = Trial(
    "catch",
    {"size": 6, "visible_frames": 2},
    "agent",
    {"layer": "delta-net", **SMALL, "use_last_action": True},
    SETTINGS,
)


def agent(layer="recurrent-delta-net", **changes):
    torch.manual_seed(0)
    return Agent((6, 6), 3, False, layer, **{**SMALL, "use_last_action": True, **changes})


def make_worker(model, number=B, steps=3 * T, seed=0):
    task = Catch(size=6, visible_frames=2)
    history = task.actions.blank(number, steps)
    return RolloutWorker(task.make_envs(number, seed), model.initial_state(number), history, 0)


@pytest.mark.parametrize("layer", ["delta-net", "recurrent-delta-net", "srwm", "lstm", "fast-weight-rnn", None])
@pytest.mark.parametrize("conv_size", [0, 3])
def test_learner_computes_the_policy_of_the_actor(layer, conv_size):
    """One scan from the initial state alone, over ends of episodes, gives the policy of every step."""
    model = agent(layer, conv_size=conv_size)
    worker = make_worker(model)
    worker.act(model, T)
    rollout = worker.act(model, T)
    assert bool(rollout.first[:, 1:].any()), "no episode began within the rollout"
    logits, _, _ = model(rollout.observation, rollout.reward, rollout.action, rollout.first, rollout.start)
    recomputed = logits[:, :-1].log_softmax(-1).gather(-1, rollout.action[:, 1:, None])[..., 0]
    assert error(recomputed, rollout.log_probability) <= tolerance(torch.float32).forward


@pytest.mark.parametrize("layer", ["delta-net", "srwm", "lstm"])
def test_truncation_changes_gradients_only(layer):
    model = agent(layer)
    rollout = to(make_worker(model).act(model, T), torch.float64)
    model = model.double()
    inputs = (rollout.observation, rollout.reward, rollout.action, rollout.first, rollout.start)
    results = {}
    for span in (0, 1, 3, T + 1):
        logits, values, _ = model(*inputs, bptt_length=span)
        gradients = torch.autograd.grad(logits[:, -1].sum() + values[:, -1].sum(), list(model.parameters()))
        results[span] = (logits, values), torch.cat([gradient.flatten() for gradient in gradients])
    for span, (outputs, gradient) in results.items():
        assert all(error(a, b) <= tolerance(torch.float64).forward for a, b in zip(outputs, results[0][0], strict=True))
        same = error(gradient, results[0][1]) <= tolerance(torch.float64).gradient
        assert same == (span in (0, T + 1))


def test_rollouts_and_evaluation_do_not_change_the_agent():
    """Actors have no dropout, and do not update moments of observations."""
    model = Agent((1, 16, 16), 3, True, "delta-net", vision="conv-4", **SMALL)
    model.encoder.append(torch.nn.Dropout(0.5))
    before = {name: value.clone() for name, value in model.state_dict().items()}

    class CatchWithImages(Catch):
        def make_envs(self, number, seed, split=0):
            envs = super().make_envs(number, seed, split)
            step, begin = envs.step, envs.reset
            images = torch.randint(0, 256, (number, 1, 16, 16), dtype=torch.uint8)
            envs.reset = lambda: begin()._replace(observation=images)
            envs.step = lambda actions: step(actions)._replace(observation=images)
            return envs

    task = CatchWithImages(size=6, visible_frames=2)
    RolloutWorker(task.make_envs(B, 0), model.initial_state(B), task.actions.blank(B, T), 0).act(model, T)
    metrics = [measure(model, task, SETTINGS, VALIDATED) for _ in range(2)]
    assert metrics[0] == metrics[1]
    assert model.training
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_most_of_an_srwm_has_no_gradient_with_truncation_to_one_step():
    """FACTS of the public code: only the weights of y have a gradient; those of keys, queries and rates have none."""
    model = agent("srwm")
    rollout = make_worker(model).act(model, T)
    blocks = dict(model.named_parameters())
    slow_weights = {name: p for name, p in blocks.items() if "memory" in name and "W_" in name}
    assert slow_weights, list(blocks)
    for span, trained in ((1, {"W_y"}), (0, {"W_y", "W_q", "W_k", "W_beta"})):
        model.zero_grad()
        objective(model, rollout, replace(SETTINGS, bptt_length=span)).backward()
        with_gradients = {
            name.rpartition(".")[2] for name, p in slow_weights.items() if p.grad is not None and bool(p.grad.any())
        }
        assert with_gradients == trained


def return_after_training(task, model, settings, updates):
    """The return of the most probable actions after a number of updates."""
    fabric = make_fabric(settings)
    bare = model
    model, optimiser = fabric.setup(model, rms_prop(model, settings))
    number = settings.batch_size
    history = task.actions.blank(number, updates * settings.rollout_length)
    worker = RolloutWorker(task.make_envs(number, 0), bare.initial_state(number), history, 0)
    for _ in range(updates):
        update(fabric, model, optimiser, worker.act(bare, settings.rollout_length), settings)
    return measure(bare, task, settings, VALIDATED)["return"]


def test_only_agents_with_memory_learn_the_t_maze():
    task, settings = TMaze(3), replace(SETTINGS, batch_size=64, rollout_length=4, learning_rate=3e-3, episodes=64)
    returns = {}
    for layer in ("delta-net", None):
        torch.manual_seed(0)
        model = Agent(*task.arguments, layer, d_model=16, num_heads=2, num_layers=1, d_ff=16)
        returns[layer] = return_after_training(task, model, settings, 80)
    assert returns["delta-net"] > 0.9 > 0.7 > returns[None]


def weights_of(path):
    return {name: (path / name).read_bytes() for name in ("last.safetensors", "best.safetensors")}


@pytest.mark.parametrize("stopped_at", [2, 4])
def test_interrupted_run_resumes_bit_identically(tmp_path, monkeypatch, stopped_at):
    """Between two evaluations: environments resume their states, though no checkpoint has them."""
    run_trial(Run(tmp_path / "whole"), TRIAL, "test", {}, resume=False)
    act, calls = RolloutWorker.act, []

    def stop(self, *arguments):
        calls.append(0)
        if len(calls) == stopped_at:
            os.kill(os.getpid(), signal.SIGTERM)
        return act(self, *arguments)

    monkeypatch.setattr(RolloutWorker, "act", stop)
    with pytest.raises(Interrupted):
        run_trial(Run(tmp_path / "stopped"), TRIAL, "test", {}, resume=False)
    monkeypatch.undo()
    run_trial(Run(tmp_path / "stopped"), TRIAL, "test", {}, resume=True)
    assert weights_of(tmp_path / "stopped") == weights_of(tmp_path / "whole")


@pytest.mark.parametrize("keep", ["best", "last"])
def test_setting_selects_the_best_or_the_last_weights(keep, tmp_path, monkeypatch):
    """Validation returns of 0, 2 and 1: the best weights are those of the second evaluation."""
    scores = iter([0.0, 2.0, 1.0])
    real = actor_critic.measure

    def fake_measure(model, task, settings, splits):
        return {**real(model, task, settings, splits), "return": next(scores, 5.0)}

    monkeypatch.setattr(actor_critic, "measure", fake_measure)
    trial = TRIAL._replace(training=replace(SETTINGS, steps=6, evaluate_every=2, keep=keep))
    run_trial(Run(tmp_path), trial, "test", {}, resume=False)
    best, last = (read_tensor_file(tmp_path / f"{name}.safetensors").tensors for name in ("best", "last"))
    assert Run(tmp_path).result().step == {"best": 4, "last": 6}[keep]
    assert all(torch.equal(tensor, last[name]) for name, tensor in best.items()) == (keep == "last")


def test_number_of_episodes_of_test_sets_is_a_setting(tmp_path, monkeypatch):
    """Every test set has this number of episodes. Results have the metrics of each set and of all sets."""
    played, real = [], actor_critic.play

    def count(model, actions, envs, number, settings):
        returns = real(model, actions, envs, number, settings)
        played.append(returns.numel())
        return returns

    monkeypatch.setattr(actor_critic, "play", count)
    monkeypatch.setattr(Catch, "tests", {"left": 5, "right": 6})
    trial = TRIAL._replace(training=replace(SETTINGS, steps=1, evaluate_every=1, episodes=2, test_episodes=4))
    run_trial(Run(tmp_path), trial, "test", {}, resume=False)
    # Validation and the test of the agent, validation of three constant actions, the test of two baselines.
    assert played == [2, 4, 4, 4, 2, 2, 2, 4, 4, 4, 4]
    result = Run(tmp_path).result()
    parts = result.details["return"]
    assert parts.keys() == {"left", "right"}
    assert result.test["return"] == pytest.approx(sum(parts.values()) / 2)


def test_baselines_are_constant_and_random_actions(tmp_path, monkeypatch):
    """If only the third action has a reward, one constant action has the largest return, and random actions a third."""

    def step(self, actions):
        return real(self, actions)._replace(reward=(actions == 2).float())

    real = CatchVectorEnv.step
    monkeypatch.setattr(CatchVectorEnv, "step", step)
    training = replace(SETTINGS, steps=1, evaluate_every=1, episodes=64)
    run_trial(Run(tmp_path), TRIAL._replace(training=training), "test", {}, resume=False)
    baselines = Run(tmp_path).result().baselines
    assert baselines["a constant action"] == 5.0
    assert 1.0 < baselines["random actions"] < 2.4


def test_unroll_stores_the_initial_state_only():
    """One state of the memory per rollout, for every length."""
    model = agent("delta-net")
    short, long = (make_worker(model).act(model, steps).start for steps in (1, T))
    assert [leaf.shape for leaf in short.layers[0]] == [leaf.shape for leaf in long.layers[0]]
    assert all(len(leaf) == B for leaf in long.layers[0])


def test_error_names_module_and_time_step_of_a_nan():
    model = agent("delta-net")
    rollout = make_worker(model).act(model, T)
    rollout.observation[1, 3, 0, 0] = float("nan")
    assert (
        first_fault(model, rollout.inputs, rollout.start)
        == "the output of module encoder.0 is not finite from time step 4"
    )
    rollout = make_worker(model).act(model, T)
    fabric = make_fabric(SETTINGS)
    shared, optimiser = fabric.setup(model, rms_prop(model, SETTINGS))
    model.memory[0].layer.output.register_forward_pre_hook(lambda module, inputs: (inputs[0] / 0,))
    with pytest.raises(
        InputError, match=r"module memory.0.layer.output is not finite from time step 1 .* Use a smaller"
    ):
        update(fabric, shared, optimiser, rollout, SETTINGS)
    assert all(bool(p.isfinite().all()) for p in model.parameters()), "the model was changed"


def test_rollouts_and_evaluation_name_the_module_of_an_infinity():
    model = agent("delta-net")
    torch.nn.init.constant_(model.memory[0].layer.output.weight, float("inf"))
    message = "policy must be finite, got NaN or infinity: the output of module memory.0.layer.output is not finite"
    with pytest.raises(InputError, match=f"^{message} from time step 1 of the rollout. Use a smaller"):
        make_worker(model).act(model, T)
    with pytest.raises(InputError, match=f"^{message} from time step 1 of the evaluation. Use a smaller"):
        measure(model, Catch(size=6, visible_frames=2), SETTINGS, VALIDATED)
    with pytest.raises(InputError, match="got NaN or infinity at time step 1 of the episode"):
        analyze_episode(model, Catch(size=6, visible_frames=2))


def one_update(fabric, path):
    """The weights after an update on the rollouts of four agents, which the processes divide among them."""
    model = agent("delta-net")
    whole = make_worker(model, 4).act(model, T)
    rows = slice(fabric.global_rank, None, fabric.world_size)
    *tensors, start = whole
    part = type(whole)(*(tensor[rows] for tensor in tensors), start.select(rows))
    model, optimiser = fabric.setup(model, torch.optim.SGD(model.parameters(), 1e-3))
    update(fabric, model, optimiser, part, replace(SETTINGS, max_grad_norm=0.0))
    if fabric.is_global_zero:
        torch.save(model.state_dict(), path)


@pytest.mark.slow
def test_several_processes_make_the_update_of_one(tmp_path, monkeypatch):
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo" if sys.platform == "linux" else "lo0")
    for devices in (1, 2):
        share(replace(SETTINGS, devices=devices, device="cpu"), one_update, tmp_path / str(devices))
    one, two = (torch.load(tmp_path / devices, weights_only=True) for devices in ("1", "2"))
    for name, weight in one.items():
        torch.testing.assert_close(two[name], weight, rtol=1e-4, atol=1e-6)


def test_gradient_accumulation_makes_the_same_update():
    weights = []
    for parts in (1, 2):
        model = agent("delta-net")
        rollout = make_worker(model, 4).act(model, T)
        settings = replace(SETTINGS, gradient_accumulation_steps=parts, max_grad_norm=0.0)
        fabric = make_fabric(settings)
        update(fabric, *fabric.setup(model, torch.optim.SGD(model.parameters(), 1e-3)), rollout, settings)
        weights.append(torch.cat([p.flatten() for p in model.parameters()]))
    assert error(*weights) <= tolerance(torch.float32).gradient


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rollout_length": 0}, "rollout_length must be from 1"),
        ({"bptt_length": -1}, "bptt_length must be from 0"),
        ({"gamma": 1.5}, "gamma must be from 0 to 1"),
        ({"learning_rate": 0.0}, "learning_rate must be above 0"),
    ],
)
def test_invalid_settings_are_rejected(changes, message):
    with pytest.raises(InputError, match=message):
        replace(SETTINGS, **changes)


def count(shape, actions, layer, **options):
    with torch.device("meta"):
        return sum(p.numel() for p in Agent(shape, actions, len(shape) == 3, layer, **options).parameters())


PROCGEN, ATARI = (3, 64, 64), (4, 84, 84)


@pytest.mark.parametrize(
    ("layer", "options", "parameters"),
    [
        (None, {}, 626_272),
        ("lstm", {"num_layers": 0, "d_model": 256}, 1_153_616),
        ("fake-srwm", {"num_heads": 8}, 958_544),
        ("delta-net", {}, 1_053_776),
        ("srwm", {"num_heads": 8}, 967_760),
        ("no-carry-srwm", {"num_heads": 8}, 967_760),
    ],
)
def test_agents_of_procgen_have_the_parameters_of_the_paper(layer, options, parameters):
    """Irie et al. 2022, Sec. 4.3: 626 K, 1.15 M, 959 K, 1.05 M, 968 K, computed by hand."""
    assert count(PROCGEN, 15, layer, **options) == parameters


@pytest.mark.parametrize(
    ("layer", "options", "millions"),
    [
        (None, {}, 1.09),
        ("lstm", {"num_layers": 0, "d_model": 256}, 1.62),
        ("sum", {}, 1.52),
        ("delta-net", {}, 1.52),
        ("recurrent-delta-net", {}, 1.55),
        ("delta-rnn", {}, 1.59),
        ("recurrent-delta-net", {"num_layers": 4, "d_model": 256, "num_heads": 8}, 3.37),
    ],
)
def test_agents_of_atari_have_the_parameters_of_the_paper(layer, options, millions):
    """Irie et al. 2021, Sec. 4.3, with 18 actions."""
    assert round(count(ATARI, 18, layer, **options) / 1e6, 2) == millions


ATARI_MILLIONS = {
    **{"feed-forward": 1.09, "lstm": 1.62, "linear": 1.52, "delta-net": 1.52, "delta-rnn": 1.59},
    **{"recurrent-delta-net": 1.55, "recurrent-delta-net-large": 3.37},
}


@pytest.mark.parametrize("name", atari.NETWORKS)
def test_recipes_of_atari_have_the_networks_of_the_paper(name):
    """Sizes of Irie et al. 2021, Sec. 4.4; gradients through fast weights end after one step, as in the public code."""
    options = dict(atari.NETWORKS[name])
    assert round(count(ATARI, 18, options.pop("layer"), **options) / 1e6, 2) == ATARI_MILLIONS[name]
    trial = atari.trial(name, "gopher", "paper")
    assert trial.training.bptt_length == (0 if name in ("lstm", "feed-forward") else 1)
    assert trial.model_options == atari.NETWORKS[name]


KEYS_IN_RL = {"sum": ("elu", "sum-5"), "delta-net": ("elu", "sum-5"), "delta-rnn": ("softmax", "none")}
"""Functions of keys in reinforcement learning, by layer."""


@pytest.mark.parametrize("networks", [atari.NETWORKS, procgen.NETWORKS], ids=["atari", "procgen"])
def test_keys_in_reinforcement_learning_are_those_of_the_paper(networks):
    """Layers with maps of keys, and softmax(x) for all self-referential layers (Irie et al. 2022, B.2)."""
    for options in networks.values():
        if options["layer"] is None or "lstm" in options["layer"]:
            continue
        layer = make_layer(options["layer"], 16, 2, **options.get("options", {}))
        if "sr" in options["layer"]:
            inner = getattr(layer, "layer", layer)
            keys = getattr(inner, "keys", None) or inner.slow_net.keys
            assert (keys.features, keys.normalised) == ("softmax", "none")
        elif options["layer"] in KEYS_IN_RL:
            keys = layer.slow_net.keys
            assert (keys.features, keys.normalised) == KEYS_IN_RL[options["layer"]]


def test_vision_encoder_of_impala_reads_images():
    model = Agent(PROCGEN, 15, True, "delta-net", d_model=16, num_heads=2, num_layers=1, d_ff=16)
    images = torch.randint(256, (2, 3, *PROCGEN), dtype=torch.uint8)
    first = torch.zeros(2, 3, dtype=torch.bool)
    logits, values, _ = model(images, torch.zeros(2, 3), torch.zeros(2, 3, dtype=torch.int64), first)
    assert (logits.shape, values.shape) == ((2, 3, 15), (2, 3))


def test_episodes_are_independent():
    """The last reward and action of an episode, too, do not affect the next one."""
    model = agent()
    observations, first = torch.rand(2, 1, 6, 6), torch.ones(2, 1, dtype=torch.bool)
    nothing = torch.zeros(2, 1)
    one = model(observations, nothing, nothing.long(), first)
    other = model(observations, nothing + 1, nothing.long() + 2, first, one[2])
    assert torch.equal(one[0], other[0])


@pytest.mark.parametrize("initial_square_avg", [0.0, 1.0])
def test_first_step_of_rms_prop_equals_its_formula(initial_square_avg):
    """- r g / (sqrt(a s + (1 - a) g^2) + e), with the initial mean of squares s."""
    settings = replace(SETTINGS, initial_square_avg=initial_square_avg, alpha=0.9, epsilon=1e-3, learning_rate=0.5)
    model = torch.nn.Linear(4, 1, bias=False, dtype=torch.float64)
    before, gradient = model.weight.detach().clone(), torch.tensor([[1e-3, 0.1, 1.0, 30.0]], dtype=torch.float64)
    model.weight.grad = gradient
    rms_prop(model, settings).step()
    expected = before - 0.5 * gradient / ((0.9 * initial_square_avg + 0.1 * gradient**2).sqrt() + 1e-3)
    assert error(model.weight, expected) <= tolerance(torch.float64).forward


def definition(log_ratios, discounts, rewards, values, last_value, delta, trace, advantage):
    """Remark 1 and Eq. 1 of Espeholt et al. 2018 as loops, in float64."""
    B, T = rewards.shape
    V = torch.cat([values, last_value[:, None]], dim=1)
    ratios = log_ratios.exp()
    v = V.clone()
    for b in range(B):
        for s in range(T):
            for t in range(s, T):
                weight = 1.0
                for i in range(s, t):
                    weight *= float(discounts[b, i] * min(ratios[b, i], trace))
                difference = rewards[b, t] + discounts[b, t] * V[b, t + 1] - V[b, t]
                v[b, s] += weight * min(float(ratios[b, t]), delta) * difference
    advantages = rewards + discounts * v[:, 1:] - values
    return v[:, :T], ratios.clamp(max=advantage) * advantages


def case(B, T, seed=0):
    random = torch.Generator().manual_seed(seed)
    log_ratios, rewards, values = (torch.randn(B, T, dtype=torch.float64, generator=random) for _ in range(3))
    discounts = 0.9 * (torch.rand(B, T, dtype=torch.float64, generator=random) > 0.2)
    return log_ratios, discounts, rewards, values, torch.randn(B, dtype=torch.float64, generator=random)


@pytest.mark.parametrize(("B", "T"), [(1, 1), (1, 7), (3, 5)])
@pytest.mark.parametrize("clips", [(1.0, 1.0, 1.0), (2.0, 0.5, 1.5)])
def test_vtrace_equals_its_definition(B, T, clips):
    result = vtrace(*case(B, T), *clips)
    for one, other in zip(result, definition(*case(B, T), *clips), strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-12)


def test_vtrace_in_float32_is_close_to_float64():
    result = vtrace(*(part.float() for part in case(4, 50)))
    for one, other in zip(result, vtrace(*case(4, 50)), strict=True):
        assert error(one, other) <= tolerance(torch.float32).forward


def test_vtrace_of_two_steps_equals_a_calculation_by_hand():
    """rho = 1/2 at the first step and 4, clipped to 1, at the second; gamma = 1/2.

    delta_2 = 3 + 1/2 * 4 - 1 = 4, v_2 = 1 + 4 = 5; delta_1 = 1/2 (1 + 1/2 * 1 - 2) = -1/4,
    v_1 = 2 - 1/4 + 1/2 * 1/2 * (5 - 1) = 2.75; the advantages are 1/2 (1 + 1/2 * 5 - 2) = 0.75 and 3 + 2 - 1 = 4.
    """
    ratios = torch.tensor([[0.5, 4.0]])
    result = vtrace(ratios.log(), torch.tensor([[0.5, 0.5]]), torch.tensor([[1.0, 3.0]]), torch.tensor([[2.0, 1.0]]),
                   torch.tensor([4.0]))  # fmt: skip
    assert result.targets.tolist() == [[2.75, 5.0]]
    assert result.advantages.tolist() == [[0.75, 4.0]]


def test_vtrace_on_policy_is_the_discounted_return():
    _, discounts, rewards, values, last = case(3, 6)
    targets = vtrace(torch.zeros_like(values), discounts, rewards, values, last).targets
    expected = last
    for t in reversed(range(6)):
        expected = rewards[:, t] + discounts[:, t] * expected
        torch.testing.assert_close(targets[:, t], expected)


def test_vtrace_does_not_cross_the_end_of_an_episode():
    log_ratios, discounts, rewards, values, last = case(2, 6)
    discounts[:, 2] = 0
    one = vtrace(log_ratios, discounts, rewards, values, last)
    rewards[:, 3:], values[:, 3:], log_ratios[:, 3:] = 9.0, -7.0, 1.0
    other = vtrace(log_ratios, discounts, rewards, values, last + 5)
    for before, after in zip(one, other, strict=True):
        assert torch.equal(before[:, :3], after[:, :3])
        assert not torch.equal(before[:, 3:], after[:, 3:])


def test_vtrace_targets_have_no_gradient():
    log_ratios, *rest = case(2, 3)
    assert not vtrace(log_ratios.requires_grad_(), *rest).targets.requires_grad
