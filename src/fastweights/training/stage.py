"""Agents in their environments: what they see next, what they carry, and how they came there."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from fastweights.tasks.kinds.environment import Worlds
from fastweights.training.evaluating import evaluating


class Unroll(NamedTuple):
    """Some steps of every environment, and what followed the last: what is learnt from."""

    seen: Tensor  # [B, T + 1, *shape]
    reward: Tensor  # [B, T + 1], of the action before
    action: Tensor  # int64 [B, T + 1], the one before
    first: Tensor  # bool [B, T + 1]
    log_probability: Tensor  # [B, T], of the actions after the first, by the policy that took them
    start: Any  # the agents' state before the first step, and no other


def unroll_of(tensors: Sequence[Tensor], start: Any) -> Unroll:
    """Its tensors, and the state of its beginning."""
    seen, reward, action, first, log_probability = tensors
    return Unroll(seen, reward, action, first, log_probability, start)


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
        history: uint8 `[B, steps]`, the actions taken so far, and room for those to come.
        taken: How many steps have been taken.
        device: Where the agents are.
    """

    def __init__(
        self, worlds: Worlds, state: Any, history: Tensor, taken: int, device: torch.device | str = "cpu"
    ) -> None:
        self.worlds, self.state, self.history, self.taken, self.device = worlds, state, history, 0, device
        self.running, self.returns = torch.zeros(len(history)), Returns()
        self.observed = worlds.begin()
        self.action = torch.zeros(len(history), dtype=torch.int64)
        for t in range(taken):
            self.step(history[:, t].long())

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
    def act(self, agent: nn.Module, steps: int) -> Unroll:
        """Acts for so many steps, as the policy says."""
        start, seen, logs = self.state, [self._told()], []
        with evaluating(agent):
            for _ in range(steps):
                logits, _, self.state = agent(*(part.unsqueeze(1) for part in seen[-1]), self.state)
                logs.append(logits[:, 0].log_softmax(-1))
                self.step(logs[-1].exp().multinomial(1)[:, 0].cpu())
                seen.append(self._told())
        told = (torch.stack(parts, dim=1) for parts in zip(*seen, strict=True))
        observation, reward, action, first = told
        log_probability = torch.stack(logs, dim=1).gather(-1, action[:, 1:, None])[..., 0]
        return Unroll(observation, reward, action, first, log_probability, start)

    def _told(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """What an agent is given, on its device."""
        seen, reward, first = (part.to(self.device) for part in self.observed)
        return seen, reward, self.action.to(self.device), first
