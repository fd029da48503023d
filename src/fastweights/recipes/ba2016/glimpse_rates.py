"""The learning rate of every network of Table 2, chosen on validation data."""

from fastweights.core.metric import Display
from fastweights.recipes._rates import rate_search
from fastweights.recipes.ba2016._glimpses import MODELS
from fastweights.recipes.ba2016.table_2 import trial

EXPERIMENT = rate_search(
    "Learning rates for MNIST as 24 glimpses with 50 features",
    "ba2016/table-2",
    Display("validation error, %", "error", "validation"),
    MODELS,
    lambda model, preset: trial(model, "50", preset),
    rates=("0.0003", "0.001", "0.003", "0.01"),
    seeds=2,
)
