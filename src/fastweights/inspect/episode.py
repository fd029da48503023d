"""An episode of an agent: observations, actions and rewards, and the analysis of its memories."""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from fastweights.core.errors import require
from fastweights.inspect.memory_trace import MemoryTrace, analyze
from fastweights.inspect.recorded_scan import record_scans
from fastweights.tasks.kinds._random import TEST
from fastweights.tasks.kinds.environment import Environment, require_finite


class Episode(NamedTuple):
    """Episode of an agent, with the analysis of each memory.

    Only memories that run by `scan` are included, since PyTorch's own kernels cannot be analysed.

    Attributes:
        frames: Observations as images, uint8 `[T, rows, columns, 3]`.
        actions: Actions `[T, *actions.shape]`.
        probabilities: Probabilities of these actions, `[T]`; densities for real numbers.
        rewards: Rewards of these actions, `[T]`.
        values: Value estimates of the observations, `[T]`.
        memories: Analysis of each memory.
    """

    frames: Tensor  # observations as images, uint8 [T, rows, columns, 3]
    actions: Tensor  # [T, *actions.shape]
    probabilities: Tensor  # of these actions, [T]; densities of real numbers
    rewards: Tensor  # rewards of these actions, [T]
    values: Tensor  # value estimates of the observations, [T]
    memories: list[MemoryTrace]


@torch.no_grad()
def analyze_episode(model: Any, task: Environment, seed: int = 0, max_steps: int = 300, greedy: bool = True) -> Episode:
    """Plays a test episode and analyses the memories of the agent.

    Args:
        model: Agent, such as the model that `fastweights.load` returns.
        task: Environment, such as the task that `fastweights.load` returns.
        seed: Seed of the environment, and of the actions unless `greedy`.
        max_steps: Maximum number of time steps.
        greedy: Whether the most probable action is taken.

    Returns:
        The episode.
    """
    inputs, actions, rewards = _play(model, task, seed, max_steps, greedy)
    with record_scans(model) as scans:
        parameters, values, _ = model(*inputs)
    probabilities = task.actions.distribution(parameters[0]).log_prob(actions).exp()
    memories = [analyze(scan) for scan in scans]
    return Episode(frames_of(inputs[0][0]), actions, probabilities, rewards, values[0], memories)


def _play(
    model: Any, task: Environment, seed: int, max_steps: int, greedy: bool
) -> tuple[list[Tensor], Tensor, Tensor]:
    """Plays an episode: inputs of the agent `[1, T, ...]`, actions and rewards `[T]`, of the first environment."""
    envs, state = task.make_envs(task.env_multiple, seed, TEST), model.initial_state(task.env_multiple)
    observed, action = envs.reset(), task.actions.blank(task.env_multiple)
    inputs: list[tuple[Tensor, ...]] = []
    results: list[tuple[Tensor, Tensor]] = []
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        while len(inputs) < max_steps and not (inputs and bool(observed.first[0])):
            require_finite(observed, f"time step {len(inputs) + 1} of the episode")
            inputs.append((observed.observation, observed.reward, action, observed.first))
            parameters, _, state = model(*(part.unsqueeze(1) for part in inputs[-1]), state)
            finite = bool(parameters.isfinite().all())
            require(finite, "policy", "finite", f"NaN or infinity at time step {len(inputs)} of the episode")
            policy = task.actions.distribution(parameters[:, 0])
            action = policy.mode if greedy else policy.sample()
            observed = envs.step(action)
            results.append((action[0], observed.reward[0]))
    envs.close()
    actions, rewards = (torch.stack(parts) for parts in zip(*results, strict=True))
    return [torch.stack(parts, 1)[:1] for parts in zip(*inputs, strict=True)], actions, rewards


def frames_of(observations: Tensor) -> Tensor:
    """Converts observations `[T, *shape]` to images, uint8 `[T, rows, columns, 3]`.

    Of bytes `(channels, rows, columns)`, three channels are colours; otherwise the last channel is the newest image.
    Numbers are grey levels from the smallest of the episode, black, to the largest, white: a matrix as an image, any
    others in one row.
    """
    if observations.dtype == torch.uint8 and observations.ndim == 4:
        return (observations if observations.shape[1] == 3 else observations[:, -1:].expand(-1, 3, -1, -1)).movedim(
            1, -1
        )
    low, high = observations.aminmax()
    grey = (255 * (observations - low) / (high - low).clamp(min=1e-9)).to(torch.uint8)
    flat = grey if grey.ndim == 3 else grey.flatten(1)[:, None]
    return flat[..., None].expand(-1, -1, -1, 3)
