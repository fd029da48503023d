"""The learning rate of every network of state tracking, chosen on validation data."""

from fastweights.core.metric import Display
from fastweights.recipes._rates import rate_search
from fastweights.recipes.state_tracking.groups import MODELS, trial

EXPERIMENT = rate_search(
    "Learning rates for running products in S3",
    "state-tracking/groups",
    Display("validation accuracy, %", "percent", "validation"),
    MODELS,
    lambda model, preset: trial(model, "s3", preset),
    rates=("0.0005", "0.001", "0.002", "0.004", "0.008", "0.016"),
    seeds=2,
)
