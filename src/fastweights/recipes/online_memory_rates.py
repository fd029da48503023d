"""The learning rate of every layer for online memory, chosen on validation data."""

from fastweights.core.metric import Display
from fastweights.recipes._rates import rate_search
from fastweights.recipes.online_memory import MODELS, trial

LOWEST = ("0.00003", "0.0001")
"""Of SRWM alone, which is best with a lower one than all others have."""

EXPERIMENT = rate_search(
    "Learning rates for online memory, at delay 10",
    "online-memory",
    Display("validation bits per past symbol", data="validation"),
    MODELS,
    lambda model, preset: trial(model, "10", preset),
    rates=(*LOWEST, "0.0003", "0.001", "0.003", "0.01"),
    seeds=2,
    skip=frozenset((model, rate) for model in MODELS if model != "srwm" for rate in LOWEST),
)
