"""The learning rate of every memory that reads for life, chosen on validation data."""

from fastweights.core.metric import Display
from fastweights.recipes._rates import rate_search
from fastweights.recipes.online_memory import MODELS, trial

LOWEST = ("0.00003", "0.0001")
"""Of SRWM alone, which is best with a lower one than all others have."""

EXPERIMENT = rate_search(
    "Learning rates for a life of reading with any layer, at delay 10",
    "online-memory",
    Display("validation bits a symbol of the past", data="validation"),
    MODELS,
    lambda model, preset: trial(model, "10", preset),
    rates=(*LOWEST, "0.0003", "0.001", "0.003", "0.01"),
    seeds=2,
    skip=frozenset((model, rate) for model in MODELS if model != "srwm" for rate in LOWEST),
)
