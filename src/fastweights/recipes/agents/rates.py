"""The learning rate of every agent with a memory, chosen on validation episodes."""

from fastweights.core.metric import Display
from fastweights.recipes._rates import rate_search
from fastweights.recipes.agents.memory import LAYERS, trial

EXPERIMENT = rate_search(
    "Learning rates for agents with a memory, in RepeatPrevious",
    "agents/memory",
    Display("validation return", data="validation"),
    LAYERS,
    lambda model, preset: trial(model, "t-maze" if preset == "smoke" else "repeat-previous", preset),
    rates=("0.0005", "0.001", "0.002", "0.004", "0.008", "0.016", "0.032"),
    seeds=2,
)
