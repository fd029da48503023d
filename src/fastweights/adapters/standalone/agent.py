"""A program that reads observations and prints the actions of an agent."""

from struct import pack
from typing import Any

import torch

from fastweights.adapters.standalone.standalone_program import StandaloneProgram
from fastweights.compiler.network.network_call import NetworkCall
from fastweights.core.action_spaces import Actions, Discrete, MultiDiscrete
from fastweights.core.errors import invalid
from fastweights.models import Agent


def program(agent: Agent, task: Any) -> StandaloneProgram:
    """The step of an agent with discrete actions. The bytes of an image are numbers."""
    sizes = _sizes(agent.actions)
    arguments = {
        "observation": torch.zeros(1, 1, *task.shape),
        "reward": torch.zeros(1, 1),
        "action": agent.actions.blank(1, 1),
        "first": torch.ones(1, 1, dtype=torch.bool),
        "state": agent.initial_state(1),
    }
    text = pack(f"<{len(sizes)}q", *sizes)
    calls = {"step": NetworkCall(agent, arguments, ["policy", "value"])}
    return StandaloneProgram("agent", calls, text, "./run network.weights < time_steps.txt", "fastweights render")


def _sizes(actions: Actions) -> tuple[int, ...]:
    """The numbers of values of every number of an action."""
    if isinstance(actions, Discrete):
        return (actions.n,)
    if isinstance(actions, MultiDiscrete):
        return tuple(actions.sizes)
    raise invalid(
        "agent", "an agent with discrete actions", f"one with {type(actions).__name__} actions", "Use Python."
    )
