"""The actor-critic loss of a rollout, and a training step on it."""

from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from fastweights.state import select
from fastweights.training.faults import refuse
from fastweights.training.optimiser_step import micro_batches, step_optimiser
from fastweights.training.rl.rollout_worker import Rollout, rollout_of
from fastweights.training.rl.vtrace import vtrace
from fastweights.training.settings.actor_critic import ActorCritic

if TYPE_CHECKING:
    # It takes seconds to import, and actor processes do not need it.
    from lightning_fabric import Fabric


def rms_prop(model: nn.Module, settings: ActorCritic) -> torch.optim.Optimizer:
    """Creates the optimiser of a run."""
    optimiser = torch.optim.RMSprop(model.parameters(), settings.learning_rate, settings.alpha, settings.epsilon)
    if settings.initial_square_avg:
        optimiser.register_step_pre_hook(partial(_begin, settings.initial_square_avg))
    return optimiser


def first_moments(parameter: Tensor, squares: float) -> dict[str, Tensor]:
    """Initial moments of RMSProp."""
    return {"step": torch.zeros(()), "square_avg": torch.full_like(parameter, squares, requires_grad=False)}


def _begin(squares: float, optimiser: torch.optim.Optimizer, *_: Any) -> None:
    for group in optimiser.param_groups:
        for parameter in group["params"]:
            if not optimiser.state[parameter]:
                optimiser.state[parameter] = first_moments(parameter, squares)


def update(
    fabric: "Fabric", model: nn.Module, optimiser: torch.optim.Optimizer, rollout: Rollout, settings: ActorCritic
) -> float:
    """One training step on a rollout; returns its loss, a sum over all steps of all environments.

    Raises:
        InputError: The loss is not finite; the message names the module and the time step.
    """
    *tensors, start = rollout
    parts = micro_batches(tensors, settings.gradient_accumulation_steps)
    size = len(parts[0][0])

    def loss(index: int) -> Tensor:
        part = rollout_of(parts[index], select(start, slice(index * size, (index + 1) * size)))
        value = objective(model, part, settings)
        require_finite_loss(value, model, part)
        # Processes average their gradients, but the loss is a sum.
        return value * fabric.world_size

    losses = [partial(loss, n) for n in range(len(parts))]
    total = step_optimiser(fabric, model, optimiser, losses, settings.max_grad_norm)
    return total.item() / fabric.world_size


def objective(model: nn.Module, rollout: Rollout, settings: ActorCritic) -> Tensor:
    """- A_t log pi(a_t) + c_v / 2 (v_t - V_t)^2 - c_e H(pi), summed over steps and environments.

    Source: Espeholt et al. 2018 (IMPALA), Sec. 4.2.
    """
    parameters, values, _ = model(*rollout.inputs, rollout.start, settings.bptt_length)
    actions: Any = model.actions
    policy = actions.distribution(parameters[:, :-1])
    chosen = policy.log_prob(rollout.action[:, 1:])
    discounts = settings.gamma * ~rollout.first[:, 1:]
    log_ratios = chosen - rollout.log_probability
    returns = vtrace(log_ratios, discounts, rewards_of(rollout, settings), values[:, :-1], values[:, -1])
    critic = (returns.targets - values[:, :-1]).square().sum() / 2
    gain: Tensor = (returns.advantages * chosen).sum() + settings.entropy_coef * policy.entropy().sum()
    return settings.value_coef * critic - gain


def rewards_of(rollout: Rollout, settings: ActorCritic) -> Tensor:
    """Rewards r_t of the loss, scaled and clipped; r_t + gamma V(o_{t+1}) where a time limit ended an episode.

    There o_{t+1} is the last observation of the episode, and its value stands for the rewards that would follow.
    Other values after an end are ignored, since gamma_t is 0.
    """
    earned = settings.reward_scale * rollout.reward[:, 1:]
    if settings.clip_reward:
        earned = earned.clamp(-settings.clip_reward, settings.clip_reward)
    return earned + settings.gamma * rollout.bootstrap_values


def require_finite_loss(loss: Tensor, model: nn.Module, rollout: Rollout) -> None:
    """`InputError` that names the module and the time step, unless a loss is finite."""
    if not bool(loss.isfinite()):
        refuse("loss", model, rollout.inputs, rollout.start, "rollout")
