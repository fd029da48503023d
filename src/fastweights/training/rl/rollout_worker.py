"""Agents in their environments: what they see next, what they carry, and how they came there."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from fastweights.state import members
from fastweights.tasks.kinds.environment import Worlds, require_finite
from fastweights.training.eval_mode import evaluating
from fastweights.training.faults import refuse


class Unroll(NamedTuple):
    """Some steps of every environment, and what followed the last: what is learnt from."""

    seen: Tensor  # [B, T + 1, *shape]
    reward: Tensor  # [B, T + 1], of the action before
    action: Tensor  # [B, T + 1, *actions.shape], the one before
    first: Tensor  # bool [B, T + 1]
    log_probability: Tensor  # [B, T], of the actions after the first, by the policy that took them
    beyond: Tensor  # [B, T]: value of what follows an episode that a time limit ended with this action, else 0
    start: Any  # the agents' state before the first step, and no other

    @property
    def told(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """The inputs of the agents at every time step."""
        return self.seen, self.reward, self.action, self.first


def unroll_of(tensors: Sequence[Tensor], start: Any) -> Unroll:
    """Its tensors, and the state of its beginning."""
    seen, reward, action, first, log_probability, beyond = tensors
    return Unroll(seen, reward, action, first, log_probability, beyond, start)


class Returns:
    """Of the episodes that have ended."""

    def __init__(self) -> None:
        self.earned, self.ended = 0.0, 0

    def add(self, earned: float, ended: int) -> None:
        """Some more of them."""
        self.earned, self.ended = self.earned + earned, self.ended + ended

    @property
    def mean(self) -> float:
        """0 where none has ended."""
        return self.earned / max(self.ended, 1)


class Stage:
    """Environments that agents act in, unroll by unroll.

    A checkpoint holds no environment: they are made anew from their seed, and the actions that were taken since are
    taken again.

    Args:
        worlds: The environments, not yet begun.
        state: The agents' initial state.
        history: `[B, steps, *actions.shape]`, the actions taken so far, and room for those to come.
        taken: How many steps have been taken.
        device: Where the agents are.
        bootstrap: Whether the agent values the last observation of an episode that a time limit ended.
    """

    def __init__(
        self,
        worlds: Worlds,
        state: Any,
        history: Tensor,
        taken: int,
        device: torch.device | str = "cpu",
        bootstrap: bool = False,
    ) -> None:
        self.worlds, self.state, self.history, self.taken, self.device = worlds, state, history, 0, device
        self.bootstrap = bootstrap
        self.running, self.returns = torch.zeros(len(history)), Returns()
        self.observed = worlds.begin()
        self.action = torch.zeros_like(history[:, 0])
        for t in range(taken):
            self.step(history[:, t].clone())

    def step(self, actions: Tensor) -> None:
        """Every environment goes on by an action."""
        self.history[:, self.taken] = actions
        self.taken += 1
        self.observed, self.action = self.worlds.step(actions), actions
        self.running += self.observed.reward
        first = self.observed.first
        self.returns.add(float(self.running[first].sum()), int(first.sum()))
        self.running[first] = 0

    @torch.no_grad()
    def act(self, agent: Any, steps: int) -> Unroll:
        """Acts for so many steps, as the policy says.

        Raises:
            InputError: An observation, a reward or the policy is not finite; the message names the time step.
        """
        start, seen, logs, beyond = self.state, [self._told(1)], [], []
        with evaluating(agent):
            for t in range(steps):
                parameters, _, self.state = agent(*(part.unsqueeze(1) for part in seen[-1]), self.state)
                if not bool(parameters.isfinite().all()):
                    refuse("policy", agent, _stacked(seen), start, "unroll")
                policy = agent.actions.distribution(parameters[:, 0])
                action = policy.sample()
                logs.append(policy.log_prob(action))
                self.step(action.cpu())
                beyond.append(self._beyond(agent, logs[-1]))
                seen.append(self._told(t + 2))
        return unroll_of([*_stacked(seen), torch.stack(logs, dim=1), torch.stack(beyond, dim=1)], start)

    def _told(self, t: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """The inputs of an agent at a time step of an unroll, on its device."""
        require_finite(self.observed, f"time step {t} of the unroll")
        seen, reward, first, _ = self.observed
        return seen.to(self.device), reward.to(self.device), self.action.to(self.device), first.to(self.device)

    def _beyond(self, agent: nn.Module, like: Tensor) -> Tensor:
        """Values `[B]` of the last observations of episodes that a time limit has just ended; 0 for all others."""
        values, cut = torch.zeros_like(like), self.observed.cut
        if not self.bootstrap or cut is None:
            return values
        told = (cut.seen, self.observed.reward[cut.rows], self.action[cut.rows], torch.zeros_like(cut.rows).bool())
        state = members(self.state, cut.rows.to(self.device))
        _, found, _ = agent(*(part.to(self.device).unsqueeze(1) for part in told), state)
        values[cut.rows.to(self.device)] = found[:, 0].to(values.dtype)
        return values


def _stacked(seen: Sequence[tuple[Tensor, ...]]) -> tuple[Tensor, ...]:
    """Steps along the time axis, `[B, T, ...]` of each part."""
    return tuple(torch.stack(parts, dim=1) for parts in zip(*seen, strict=True))
