"""An agent that takes the same action in every state: the baseline of agents that only seem to act by what they see."""

from typing import Any

import torch
from torch import Tensor, nn

CERTAIN = 1e4
"""Logit of the action; those of the others are 0."""


class ConstantPolicy(nn.Module):
    """A policy whose action depends on nothing.

    Args:
        action: Number of the action.
        actions: How many there are.
    """

    def __init__(self, action: int, actions: int) -> None:
        super().__init__()
        self.logits = nn.Parameter(torch.zeros(actions), requires_grad=False)
        self.logits[action] = CERTAIN

    def forward(
        self, observation: Tensor, reward: Tensor, action: Tensor, first: Tensor, state: Any
    ) -> tuple[Any, ...]:
        """Logits `[B, T, actions]`, values of 0 `[B, T]` and no state, from the inputs of an `Agent`."""
        return self.logits.expand(*first.shape, -1), torch.zeros(first.shape), state

    def initial_state(self, batch_size: int) -> tuple[()]:
        """No state."""
        return ()
