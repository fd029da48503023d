"""The learning rate of every network of associative recall, chosen on validation data."""

from fastweights.core.metric import Display
from fastweights.recipes._rates import rate_search
from fastweights.recipes.zoology.recall import MODELS, trial

EXPERIMENT = rate_search(
    "Learning rates for associative recall of 16 pairs",
    "zoology/recall",
    Display("validation accuracy, %", "percent", "validation"),
    MODELS,
    lambda model, preset: trial(model, "16", preset),
    rates=("0.001", "0.002", "0.004", "0.008", "0.016"),
    seeds=2,
)
