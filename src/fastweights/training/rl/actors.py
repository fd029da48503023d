"""Work of actor processes, and of actor processes that also learn."""

from copy import deepcopy

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten, tree_map_only

from fastweights.tasks.kinds.environment import Environment
from fastweights.training.optimiser_step import set_learning_rate
from fastweights.training.rl.actor_critic_loss import objective, require_finite_loss, rms_prop
from fastweights.training.rl.rollout_worker import EpisodeReturns, Rollout, RolloutWorker
from fastweights.training.rl.worker_pool import Work
from fastweights.training.settings.actor_critic import ActorCritic


def seed_of(*numbers: int) -> int:
    """Derives a seed from a list of numbers."""
    return int(np.random.SeedSequence(numbers).generate_state(1, np.uint64)[0] >> 1)


def make_actor(
    worker_id: int,
    num_restarts: int,
    task: Environment,
    copies: list[nn.Module],
    buffers: list[list[Tensor]],
    settings: ActorCritic,
    seed: tuple[int, ...],
) -> Work:
    """Returns the work of an actor, whose messages are the index of the newest copy of the weights."""
    agent = deepcopy(copies[0])
    worker = _worker_of(agent, task, len(buffers[worker_id][0]), settings, (*seed, worker_id, num_restarts))

    @torch.no_grad()
    def act(newest: int) -> tuple[float, int]:
        agent.load_state_dict(copies[newest].state_dict())
        rollout, counted = _act(worker, agent, settings)
        for buffer, leaf in zip(buffers[worker_id], tree_flatten(rollout)[0], strict=True):
            buffer.copy_(leaf)
        return counted

    return act


def make_learner(
    worker_id: int,
    num_restarts: int,
    task: Environment,
    model: nn.Module,
    moments: list[dict[str, Tensor]],
    settings: ActorCritic,
    seed: tuple[int, ...],
) -> Work:
    """Returns the work of a learning actor, whose messages are the number of the training step."""
    agent, optimiser = deepcopy(model), rms_prop(model, settings)
    for parameter, shared in zip(model.parameters(), moments, strict=True):
        optimiser.state[parameter] = shared
    worker = _worker_of(
        agent, task, settings.batch_size // settings.num_actors, settings, (*seed, worker_id, num_restarts)
    )

    def learn(step: int) -> tuple[float, float, int]:
        agent.load_state_dict(model.state_dict())
        rollout, counted = _act(worker, agent, settings)
        agent.zero_grad()
        loss = objective(agent, rollout, settings)
        require_finite_loss(loss, agent, rollout)
        loss.backward()
        if settings.max_grad_norm:
            nn.utils.clip_grad_norm_(agent.parameters(), settings.max_grad_norm)
        for parameter, copy in zip(model.parameters(), agent.parameters(), strict=True):
            parameter.grad = copy.grad
        set_learning_rate(optimiser, settings.learning_rate_at(step))
        optimiser.step()
        return loss.item(), *counted

    return learn


def _worker_of(
    agent: nn.Module, task: Environment, rows: int, settings: ActorCritic, seed: tuple[int, ...]
) -> RolloutWorker:
    """Creates the rollout worker of an actor, whose actions are not replayed."""
    torch.manual_seed(seed_of(*seed))
    envs, state = task.make_envs(rows, seed_of(*seed, 0)), agent.initial_state(rows)  # type: ignore[operator]
    history = task.actions.blank(rows, settings.rollout_length)
    bootstrap, compiled = settings.bootstrap_time_limits, settings.compiles_steps
    return RolloutWorker(envs, state, history, 0, bootstrap=bootstrap, compiled=compiled)


def _act(worker: RolloutWorker, agent: nn.Module, settings: ActorCritic) -> tuple[Rollout, tuple[float, int]]:
    """Returns a rollout, with the sum and number of the returns of episodes that ended in it."""
    worker.num_steps, worker.returns = 0, EpisodeReturns()
    rollout = worker.act(agent, settings.rollout_length)
    return rollout, (worker.returns.total, worker.returns.count)


def buffer_for(model: nn.Module, task: Environment, rows: int, steps: int) -> Rollout:
    """Allocates shared memory for a rollout."""
    observations = torch.zeros(rows, steps + 1, *task.shape, dtype=torch.uint8 if task.from_pixels else torch.float32)
    zeros = torch.zeros(rows, steps + 1)
    state, actions = model.initial_state(rows), task.actions.blank(rows, steps + 1)  # type: ignore[operator]
    buffer = Rollout(observations, zeros, actions, zeros.bool(), zeros[:, 1:], zeros[:, 1:], state)
    return tree_map_only(Tensor, lambda leaf: leaf.detach().clone().share_memory_(), buffer)
