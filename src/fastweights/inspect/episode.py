"""An episode of an agent: what it saw, did and earned, and what its memories did meanwhile."""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from fastweights.core.errors import require
from fastweights.inspect.contents import Contents, look_into
from fastweights.inspect.watch import watch
from fastweights.tasks.kinds._random import TEST
from fastweights.tasks.kinds.environment import Environment, require_finite


class Episode(NamedTuple):
    """T steps of an agent, and what each of its memories did in them.

    `memories` are those that a scan runs: PyTorch's own kernels cannot be looked into.
    """

    frames: Tensor  # what was seen, uint8 [T, rows, columns, 3]
    actions: Tensor  # [T, *actions.shape]
    probabilities: Tensor  # of these actions, [T]; densities of real numbers
    rewards: Tensor  # what they earned, [T]
    values: Tensor  # of what was seen, [T]
    memories: list[Contents]


@torch.no_grad()
def watch_episode(model: Any, task: Environment, seed: int = 0, most: int = 300, greedy: bool = True) -> Episode:
    """Plays a test episode, or its first `most` steps; `fastweights.load` has both model and task.

    Args:
        model: An agent.
        task: Its environment.
        seed: Of the environment, and of the actions unless the likeliest one is taken.
        most: Steps.
        greedy: Whether the likeliest action is taken.
    """
    told, actions, rewards = _played(model, task, seed, most, greedy)
    with watch(model) as scans:
        parameters, values, _ = model(*told)
    probabilities = task.actions.distribution(parameters[0]).log_prob(actions).exp()
    found = [look_into(scan) for scan in scans]
    return Episode(frames_of(told[0][0]), actions, probabilities, rewards, values[0], found)


def _played(model: Any, task: Environment, seed: int, most: int, greedy: bool) -> tuple[list[Tensor], Tensor, Tensor]:
    """What the agent was told, `[1, T, ...]`, what it did and what that earned, `[T]`: of the first environment."""
    worlds, state = task.worlds(task.together, seed, TEST), model.initial_state(task.together)
    observed, action = worlds.begin(), task.actions.blank(task.together)
    told: list[tuple[Tensor, ...]] = []
    did: list[tuple[Tensor, Tensor]] = []
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        while len(told) < most and not (told and bool(observed.first[0])):
            require_finite(observed, f"time step {len(told) + 1} of the episode")
            told.append((observed.seen, observed.reward, action, observed.first))
            parameters, _, state = model(*(part.unsqueeze(1) for part in told[-1]), state)
            finite = bool(parameters.isfinite().all())
            require(finite, "policy", "finite", f"NaN or infinity at time step {len(told)} of the episode")
            policy = task.actions.distribution(parameters[:, 0])
            action = policy.mode if greedy else policy.sample()
            observed = worlds.step(action)
            did.append((action[0], observed.reward[0]))
    worlds.close()
    actions, rewards = (torch.stack(parts) for parts in zip(*did, strict=True))
    return [torch.stack(parts, 1)[:1] for parts in zip(*told, strict=True)], actions, rewards


def frames_of(seen: Tensor) -> Tensor:
    """Observations `[T, *shape]` as pictures, uint8 `[T, rows, columns, 3]`.

    Of bytes `(channels, rows, columns)` three channels are colours, else the last is the newest picture. Numbers are
    grey from the smallest of the episode, black, to the largest, white: a matrix as it is, any others in one row.
    """
    if seen.dtype == torch.uint8 and seen.ndim == 4:
        return (seen if seen.shape[1] == 3 else seen[:, -1:].expand(-1, 3, -1, -1)).movedim(1, -1)
    low, high = seen.aminmax()
    grey = (255 * (seen - low) / (high - low).clamp(min=1e-9)).to(torch.uint8)
    flat = grey if grey.ndim == 3 else grey.flatten(1)[:, None]
    return flat[..., None].expand(-1, -1, -1, 3)
