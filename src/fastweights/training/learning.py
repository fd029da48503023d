"""What an actor and a critic learn from an unroll: the loss, and an update."""

from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from fastweights.errors import require
from fastweights.state import members
from fastweights.training.descent import descend, micro_batches
from fastweights.training.settings.actor_critic import ActorCritic
from fastweights.training.stage import Unroll, unroll_of
from fastweights.training.vtrace import vtrace

if TYPE_CHECKING:
    # It takes seconds to import, and processes that act need none of it.
    from lightning_fabric import Fabric


def rms_prop(model: nn.Module, settings: ActorCritic) -> torch.optim.Optimizer:
    """The optimiser of a run."""
    optimiser = torch.optim.RMSprop(model.parameters(), settings.learning_rate, settings.alpha, settings.epsilon)
    if settings.squares:
        optimiser.register_step_pre_hook(partial(_begin, settings.squares))
    return optimiser


def first_moments(parameter: Tensor, squares: float) -> dict[str, Tensor]:
    """RMSProp's, before the first update."""
    return {"step": torch.zeros(()), "square_avg": torch.full_like(parameter, squares, requires_grad=False)}


def _begin(squares: float, optimiser: torch.optim.Optimizer, *_: Any) -> None:
    for group in optimiser.param_groups:
        for parameter in group["params"]:
            if not optimiser.state[parameter]:
                optimiser.state[parameter] = first_moments(parameter, squares)


def update(
    fabric: "Fabric", model: nn.Module, optimiser: torch.optim.Optimizer, unroll: Unroll, settings: ActorCritic
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
            complain(model, own)
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


def complain(model: nn.Module, unroll: Unroll) -> None:
    """`InputError` that names the part of the model and the step where a number is none."""
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
