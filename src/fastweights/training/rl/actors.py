"""What processes do that act in environments of their own, and those that learn there as well."""

from copy import deepcopy

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten, tree_map_only

from fastweights.tasks.kinds.environment import Environment
from fastweights.training.optimiser_step import set_learning_rate
from fastweights.training.rl.actor_critic_loss import objective, require_finite_loss, rms_prop
from fastweights.training.rl.rollout_worker import Returns, Stage, Unroll
from fastweights.training.rl.worker_pool import Work
from fastweights.training.settings.actor_critic import ActorCritic


def seed_of(*numbers: int) -> int:
    """A seed for every list of numbers."""
    return int(np.random.SeedSequence(numbers).generate_state(1, np.uint64)[0] >> 1)


def begin_acting(
    seat: int,
    hired: int,
    task: Environment,
    copies: list[nn.Module],
    rooms: list[list[Tensor]],
    settings: ActorCritic,
    seed: tuple[int, ...],
) -> Work:
    """An actor: what it is told is which copy of the weights is the newest."""
    own = deepcopy(copies[0])
    stage = _stage_of(own, task, len(rooms[seat][0]), settings, (*seed, seat, hired))

    @torch.no_grad()
    def act(newest: int) -> tuple[float, int]:
        own.load_state_dict(copies[newest].state_dict())
        unroll, counted = _act(stage, own, settings)
        for room, leaf in zip(rooms[seat], tree_flatten(unroll)[0], strict=True):
            room.copy_(leaf)
        return counted

    return act


def begin_learning(
    seat: int,
    hired: int,
    task: Environment,
    model: nn.Module,
    moments: list[dict[str, Tensor]],
    settings: ActorCritic,
    seed: tuple[int, ...],
) -> Work:
    """An actor that learns: what it is told is the number of the update."""
    own, optimiser = deepcopy(model), rms_prop(model, settings)
    for parameter, shared in zip(model.parameters(), moments, strict=True):
        optimiser.state[parameter] = shared
    stage = _stage_of(own, task, settings.batch_size // settings.actors, settings, (*seed, seat, hired))

    def learn(step: int) -> tuple[float, float, int]:
        own.load_state_dict(model.state_dict())
        unroll, counted = _act(stage, own, settings)
        own.zero_grad()
        loss = objective(own, unroll, settings)
        require_finite_loss(loss, own, unroll)
        loss.backward()
        if settings.clip:
            nn.utils.clip_grad_norm_(own.parameters(), settings.clip)
        for parameter, copy in zip(model.parameters(), own.parameters(), strict=True):
            parameter.grad = copy.grad
        set_learning_rate(optimiser, settings.learning_rate_at(step))
        optimiser.step()
        return loss.item(), *counted

    return learn


def _stage_of(agent: nn.Module, task: Environment, rows: int, settings: ActorCritic, seed: tuple[int, ...]) -> Stage:
    """Environments of an actor, whose actions need not be taken again."""
    torch.manual_seed(seed_of(*seed))
    worlds, state = task.worlds(rows, seed_of(*seed, 0)), agent.initial_state(rows)  # type: ignore[operator]
    history = task.actions.blank(rows, settings.unroll)
    return Stage(worlds, state, history, 0, bootstrap=settings.bootstrap_time_limits)


def _act(stage: Stage, agent: nn.Module, settings: ActorCritic) -> tuple[Unroll, tuple[float, int]]:
    """An unroll, and the returns of the episodes that ended in it: their sum and number."""
    stage.taken, stage.returns = 0, Returns()
    unroll = stage.act(agent, settings.unroll)
    return unroll, (stage.returns.earned, stage.returns.ended)


def room_for(model: nn.Module, task: Environment, rows: int, steps: int) -> Unroll:
    """Shared memory for an unroll."""
    seen = torch.zeros(rows, steps + 1, *task.shape, dtype=torch.uint8 if task.pictures else torch.float32)
    one = torch.zeros(rows, steps + 1)
    state, actions = model.initial_state(rows), task.actions.blank(rows, steps + 1)  # type: ignore[operator]
    room = Unroll(seen, one, actions, one.bool(), one[:, 1:], one[:, 1:], state)
    return tree_map_only(Tensor, lambda leaf: leaf.detach().clone().share_memory_(), room)
