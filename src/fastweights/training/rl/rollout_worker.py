"""Rollout workers: agents in their environments, with observations, states and history."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from fastweights.state import select
from fastweights.steps import compiled_after
from fastweights.tasks.kinds.environment import VectorEnv, require_finite
from fastweights.training.eval_mode import evaluating
from fastweights.training.faults import refuse


class Rollout(NamedTuple):
    """T steps of every environment and the observation after the last: the data of a training step."""

    observation: Tensor  # [B, T + 1, *shape]
    reward: Tensor  # [B, T + 1], of the action before
    action: Tensor  # [B, T + 1, *actions.shape], the one before
    first: Tensor  # bool [B, T + 1]
    log_probability: Tensor  # [B, T], of the actions after the first, by the policy that took them
    bootstrap_values: Tensor  # [B, T]: value after an episode that a time limit ended with this action, else 0
    start: Any  # state of the agents before the first step

    @property
    def inputs(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """The inputs of the agents at every time step."""
        return self.observation, self.reward, self.action, self.first


def rollout_of(tensors: Sequence[Tensor], start: Any) -> Rollout:
    """Builds a rollout from its tensors and its initial state."""
    observations, reward, action, first, log_probability, bootstrap_values = tensors
    return Rollout(observations, reward, action, first, log_probability, bootstrap_values, start)


class EpisodeReturns:
    """Sum and number of the returns of episodes that have ended."""

    def __init__(self) -> None:
        self.total, self.count = 0.0, 0

    def add(self, total: float, count: int) -> None:
        """Adds returns of further episodes."""
        self.total, self.count = self.total + total, self.count + count

    @property
    def mean(self) -> float:
        """The mean return; 0 if no episode has ended."""
        return self.total / max(self.count, 1)


class RolloutWorker:
    """Environments in which agents act, rollout by rollout.

    A checkpoint contains no environment: they are created again from their seed, and the actions since then are
    replayed.

    Args:
        envs: The environments, before their first step.
        state: The initial state of the agents.
        history: `[B, steps, *actions.shape]`, the actions so far, and space for later ones.
        num_steps: Number of steps so far.
        device: Device of the agents.
        bootstrap: Whether the value of the last observation replaces the rewards after a time limit.
        compiled: Whether steps of the agent are compiled. It must not change when a run resumes.
    """

    def __init__(
        self,
        envs: VectorEnv,
        state: Any,
        history: Tensor,
        num_steps: int,
        device: torch.device | str = "cpu",
        bootstrap: bool = False,
        compiled: bool = False,
    ) -> None:
        self.envs, self.state, self.history, self.num_steps, self.device = envs, state, history, 0, device
        self.bootstrap, self.compiled_after = bootstrap, 0 if compiled else None
        self.running, self.returns = torch.zeros(len(history)), EpisodeReturns()
        self.observed = envs.reset()
        self.action = torch.zeros_like(history[:, 0])
        for t in range(num_steps):
            self.step(history[:, t].clone())

    def step(self, actions: Tensor) -> None:
        """Takes one step of every environment."""
        self.history[:, self.num_steps] = actions
        self.num_steps += 1
        self.observed, self.action = self.envs.step(actions), actions
        self.running += self.observed.reward
        first = self.observed.first
        self.returns.add(float(self.running[first].sum()), int(first.sum()))
        self.running[first] = 0

    @torch.no_grad()
    def act(self, agent: Any, steps: int) -> Rollout:
        """Acts for `steps` steps with sampled actions.

        Raises:
            InputError: An observation, a reward or the policy is not finite; the message names the time step.
        """
        start, inputs, logs, bootstrap_values = self.state, [self._inputs(1)], [], []
        with evaluating(agent), compiled_after(self.compiled_after):
            for t in range(steps):
                parameters, _, self.state = agent(*(part.unsqueeze(1) for part in inputs[-1]), self.state)
                if not bool(parameters.isfinite().all()):
                    refuse("policy", agent, _stacked(inputs), start, "rollout")
                policy = agent.actions.distribution(parameters[:, 0])
                action = policy.sample()
                logs.append(policy.log_prob(action))
                self.step(action.cpu())
                bootstrap_values.append(self._bootstrap_values(agent, logs[-1]))
                inputs.append(self._inputs(t + 2))
        return rollout_of([*_stacked(inputs), torch.stack(logs, dim=1), torch.stack(bootstrap_values, dim=1)], start)

    def _inputs(self, t: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """The inputs of an agent at a time step of a rollout, on its device."""
        require_finite(self.observed, f"time step {t} of the rollout")
        observations, reward, first, _ = self.observed
        return observations.to(self.device), reward.to(self.device), self.action.to(self.device), first.to(self.device)

    def _bootstrap_values(self, agent: nn.Module, like: Tensor) -> Tensor:
        """Values `[B]` of the last observations of episodes that a time limit has just ended; 0 for all others."""
        values, truncated = torch.zeros_like(like), self.observed.truncated
        if not self.bootstrap or truncated is None:
            return values
        inputs = (
            truncated.observation,
            self.observed.reward[truncated.rows],
            self.action[truncated.rows],
            torch.zeros_like(truncated.rows).bool(),
        )
        state = select(self.state, truncated.rows.to(self.device))
        _, estimates, _ = agent(*(part.to(self.device).unsqueeze(1) for part in inputs), state)
        values[truncated.rows.to(self.device)] = estimates[:, 0].to(values.dtype)
        return values


def _stacked(steps: Sequence[tuple[Tensor, ...]]) -> tuple[Tensor, ...]:
    """Stacks steps along the time axis, `[B, T, ...]` of each part."""
    return tuple(torch.stack(parts, dim=1) for parts in zip(*steps, strict=True))
