"""Actors and critics that share a memory: act, learn by V-trace from what came of it, act on."""

from functools import partial
from typing import Any

import numpy as np
import torch
from lightning.fabric import Fabric
from rich.console import Console
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from fastweights.errors import require
from fastweights.state import members, to
from fastweights.tasks.kinds._random import TEST, VALIDATION
from fastweights.tasks.kinds.environment import Environment, Worlds
from fastweights.training.descent import descend, micro_batches
from fastweights.training.result import Result
from fastweights.training.session import Session
from fastweights.training.settings.actor_critic import MOST_ACTIONS, ActorCritic
from fastweights.training.stage import Stage, Unroll, unroll_of
from fastweights.training.vtrace import vtrace

MEASURED_WITH = 32
"""Environments side by side, where agents are measured."""


def train(session: Session) -> None:
    """Trains until `steps`, or until validation no longer improves; goes on from the run if it can.

    The model maps observations, last rewards, last actions, firsts and a state to logits, values and the next state.
    Of an unroll only the state at its beginning is kept. Environments begin anew after every evaluation, so that a
    checkpoint need not hold them. Leaves `last.safetensors` to go on from, `best.safetensors` with the weights that
    validate best and `metrics.jsonl`. Raises `Interrupted` on Ctrl-C or SIGTERM, after a checkpoint.
    """
    fabric, task, settings = session.fabric, session.task, session.settings
    require(task.actions <= MOST_ACTIONS, "actions", f"at most {MOST_ACTIONS}", task.actions)
    model, optimiser = session.set_up(rms_prop(session.model, settings))
    state, history = session.resume(_carried(session))
    place = session.place
    stage = _stage(session, state, history, place.step % settings.evaluate_every)
    with session.running():
        while not place.stopped:
            unroll = stage.act(session.bare, settings.unroll)
            set_learning_rate(optimiser, settings, place.step)
            loss = update(fabric, model, optimiser, unroll, settings)
            session.count(loss, f"return {stage.mean_return:.3g}")
            told = ""
            if session.due:
                told = _evaluate(session, stage)
                stage.worlds.close()
                stage = _stage(session, *_carried(session), 0)
            session.rest((to(stage.state, "cpu"), stage.history), told)
    stage.worlds.close()


def finish(session: Session) -> Result:
    """Plays with the weights that validated best, in environments for validation and for the test."""
    model, task, settings = session.fabric.setup_module(session.model), session.task, session.settings
    validation, test = (measure(model, task, settings, split) for split in (VALIDATION, TEST))
    chance = measure(None, task, settings, TEST)
    return session.result(validation, test, {"random actions": chance[task.main_metric.name]})


def show(session: Session, result: Result, console: Console) -> None:
    """The return on test episodes, and the main metric beside that of random actions."""
    name = session.task.main_metric.name
    console.print(
        f"return {result.test['return']:.4g} ± {result.test['interval']:.2g} in {session.settings.episodes} episodes; "
        f"{name} {result.test[name]:.4g}, with random actions {result.baselines['random actions']:.4g}",
        highlight=False,
    )


def rms_prop(model: nn.Module, settings: ActorCritic) -> torch.optim.Optimizer:
    """The optimiser of a run."""
    return torch.optim.RMSprop(model.parameters(), settings.learning_rate, settings.alpha, settings.epsilon)


def set_learning_rate(optimiser: torch.optim.Optimizer, settings: ActorCritic, step: int) -> None:
    """Linear."""
    for group in optimiser.param_groups:
        group["lr"] = settings.learning_rate * (1 - settings.anneal * step / settings.steps)


def update(
    fabric: Fabric, model: nn.Module, optimiser: torch.optim.Optimizer, unroll: Unroll, settings: ActorCritic
) -> float:
    """One update on an unroll; returns its loss, a sum over all steps of all environments.

    Raises:
        InputError: The loss is no number; the message names the part of the model and the step.
    """
    *tensors, start = unroll
    parts = micro_batches(tensors, settings.accumulate)
    size = len(parts[0][0])

    def loss(place: int) -> Tensor:
        own = unroll_of(parts[place], members(start, slice(place * size, (place + 1) * size)))
        found = objective(model, own, settings)
        if not found.isfinite():
            _complain(model, own, settings)
        # Processes take the mean of their gradients, which are of sums.
        return found * fabric.world_size

    total = descend(fabric, model, optimiser, [partial(loss, n) for n in range(len(parts))], settings.clip)
    return total / fabric.world_size


def objective(model: nn.Module, unroll: Unroll, settings: ActorCritic) -> Tensor:
    """- A_t log pi(a_t) + c_v / 2 (v_t - V_t)^2 - c_e H(pi), summed over steps and environments.

    Source: Espeholt et al. 2018 (IMPALA), Sec. 4.2.
    """
    seen, reward, action, first, behaviour, start = unroll
    logits, values, _ = model(seen, reward, action, first, start, settings.truncate)
    logs, values, last = logits[:, :-1].log_softmax(-1), values[:, :-1], values[:, -1]
    chosen = logs.gather(-1, action[:, 1:, None])[..., 0]
    earned = reward[:, 1:]
    if settings.clip_reward:
        earned = earned.clamp(-settings.clip_reward, settings.clip_reward)
    discounts = settings.discount * ~first[:, 1:]
    learnt = vtrace(chosen - behaviour, discounts, earned, values, last)
    critic = (learnt.targets - values).square().sum() / 2
    entropy = -(logs.exp() * logs).sum()
    gain: Tensor = (learnt.advantages * chosen).sum() + settings.entropy_cost * entropy
    return settings.value_cost * critic - gain


@torch.no_grad()
def measure(model: nn.Module | None, task: Environment, settings: ActorCritic, split: int) -> dict[str, float]:
    """The mean return of episodes, with 95 % of what it varies over them; by random actions without a model.

    Every environment plays as many episodes, so that short ones do not come more often: at least as many as asked for.
    """
    number = max(min(settings.episodes, MEASURED_WITH) // task.together, 1) * task.together
    worlds = task.worlds(number, 0, split)
    returns = play(model, task.actions, worlds, number, settings)
    worlds.close()
    mean = float(returns.mean())
    deviation = float(returns.std()) if returns.numel() > 1 else 0.0
    interval = 1.96 * deviation / returns.numel() ** 0.5
    return {"return": mean, "loss": -mean, "interval": interval, **task.summary(returns)}


def play(model: nn.Module | None, actions: int, worlds: Worlds, number: int, settings: ActorCritic) -> Tensor:
    """Returns of the first episodes of every environment, `[episodes, number]`."""
    episodes = -(-settings.episodes // number)
    random = torch.Generator().manual_seed(0)
    device = "cpu" if model is None else next(model.parameters()).device
    state = None if model is None else model.initial_state(number)  # type: ignore[operator]
    observed, action = worlds.begin(), torch.zeros(number, dtype=torch.int64)
    returns, done = torch.zeros(episodes + 1, number, dtype=torch.float64), torch.zeros(number, dtype=torch.int64)
    everybody = torch.arange(number)
    for _ in range(settings.longest * episodes):
        logits = torch.zeros(number, actions)
        if model is not None:
            told = (observed.seen, observed.reward, action, observed.first)
            said, _, state = model(*(part.unsqueeze(1).to(device) for part in told), state)
            logits = said[:, 0].cpu()
        greedy = settings.greedy and model is not None
        action = logits.argmax(-1) if greedy else logits.softmax(-1).multinomial(1, generator=random)[:, 0]
        observed = worlds.step(action)
        returns[done, everybody] += observed.reward
        done = (done + observed.first).clamp(max=episodes)
        if bool((done == episodes).all()):
            break
    return returns[:episodes]


def _stage(session: Session, state: Any, history: Tensor, updates: int) -> Stage:
    """Environments of this process and of this evaluation, so many updates after they began."""
    fabric, settings = session.fabric, session.settings
    began = session.place.step - updates
    words = np.random.SeedSequence([settings.seed, fabric.global_rank, began]).generate_state(1, np.uint64)
    worlds = session.task.worlds(len(history), int(words[0] >> 1))
    return Stage(worlds, to(state, fabric.device), history, updates * settings.unroll, fabric.device)


def _carried(session: Session) -> tuple[Any, Tensor]:
    """What a checkpoint holds beside weights, at the beginning."""
    settings = session.settings
    rows = settings.batch_size // session.fabric.world_size
    steps = min(settings.evaluate_every, settings.steps) * settings.unroll
    state = session.bare.initial_state(rows)  # type: ignore[operator]
    return state, torch.zeros(rows, steps, dtype=torch.uint8)


def _evaluate(session: Session, stage: Stage) -> str:
    """Validates; returns a line to show."""
    place, settings = session.place, session.settings
    measured = measure(session.bare, session.task, settings, VALIDATION)
    session.judge(measured, train_return=stage.mean_return)
    rate = session.clock.rate(place.step) * settings.batch_size * settings.unroll
    return (
        f"step {place.step:>6}  return {stage.mean_return:.3f} in training, {measured['return']:.3f} in validation"
        f"  {rate:,.0f} steps/s"
    )


def _complain(model: nn.Module, unroll: Unroll, settings: ActorCritic) -> None:
    remedy = "Take a smaller learning_rate; the run can go on from its last checkpoint."
    require(False, "loss", "a number", f"another: {first_fault(model, unroll)}", remedy)


@torch.no_grad()
def first_fault(model: nn.Module, unroll: Unroll) -> str:
    """Which part of a model gives the first number that is none, and at which step of an unroll."""
    faults: list[str] = []

    def look(name: str, module: nn.Module, given: Any, said: Any) -> None:
        if not all(bool(leaf.isfinite().all()) for leaf in tree_leaves(said) if isinstance(leaf, Tensor)):
            faults.append(name or "the whole")

    hooks = [part.register_forward_hook(partial(look, name)) for name, part in model.named_modules()]
    seen, reward, action, first, _, state = unroll
    try:
        for t in range(first.shape[1]):
            told = (part[:, t : t + 1] for part in (seen, reward, action, first))
            *_, state = model(*told, state)
            if faults:
                return f"{faults[0]} is not finite from step {t + 1} of the unroll on"
    finally:
        for hook in hooks:
            hook.remove()
    return "every part is finite, but for sums"
