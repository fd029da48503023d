"""A program that reads observations and prints the actions of an agent."""

from struct import pack
from typing import Any

import torch

from fastweights.adapters.standalone.standalone_program import ProgramPart, StandaloneProgram
from fastweights.compiler.network.network_call import NetworkCall
from fastweights.core.action_spaces import Actions, Box, Discrete, MultiDiscrete
from fastweights.core.errors import invalid
from fastweights.models import Agent


def program(agent: Agent, task: Any) -> StandaloneProgram:
    """The step of an agent, and its action space. The bytes of an image are numbers."""
    actions = _standalone(agent.actions)
    arguments = {
        "observation": torch.zeros(1, 1, *task.shape),
        "reward": torch.zeros(1, 1),
        "action": agent.actions.blank(1, 1),
        "first": torch.ones(1, 1, dtype=torch.bool),
        "state": agent.initial_state(1),
    }
    return StandaloneProgram(
        main="agent",
        calls={"step": NetworkCall(agent, arguments, ["policy", "value"])},
        text=actions.text,
        usage="./run network.weights < time_steps.txt",
        in_python="fastweights render",
        parts={"actions.h": actions.header},
    )


def _standalone(actions: Actions) -> ProgramPart:
    """The action space of a program; `InputError` for a user-defined one."""
    match actions:
        case Discrete(n):
            return ProgramPart("choices.h", pack("<q", n))
        case MultiDiscrete(sizes):
            return ProgramPart("choices.h", pack(f"<{len(sizes)}q", *sizes))
        case Box(low, high):
            return ProgramPart("box.h", pack(f"<{2 * len(low)}d", *low, *high))
    raise invalid("actions", "an action space of the library", type(actions).__name__, "Use Python.")
