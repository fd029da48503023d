"""The learning rate of every network of Table 3, chosen on validation data."""

from fastweights.metric import ACCURACY
from fastweights.recipes._rates import rate_search
from fastweights.recipes.ba2016._glimpses import MODELS
from fastweights.recipes.ba2016.table_3 import trial

EXPERIMENT = rate_search(
    "Learning rates for the poses of faces as 24 glimpses",
    "ba2016/table-3",
    ACCURACY.told("percent", "validation accuracy, %", "validation"),
    MODELS,
    lambda model, preset: trial(model, "pose", preset),
    rates=("0.0001", "0.0003", "0.001", "0.003", "0.01", "0.03"),
    seeds=4,
    skip=frozenset([("irnn", "0.03")]),  # at 0.01 it has learned nothing
    fold="fold",
)
