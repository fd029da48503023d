"""The learning rate of every network of Table 1, chosen on validation data."""

from fastweights.metric import ACCURACY
from fastweights.recipes._rates import rate_search
from fastweights.recipes.ba2016.table_1 import MODELS, trial

EXPERIMENT = rate_search(
    "Learning rates for associative retrieval with 20 units",
    "ba2016/table-1",
    ACCURACY.told("error", "validation error, %", "validation"),
    MODELS,
    lambda model, preset: trial(model, "20", preset),
    rates=("0.0001", "0.0003", "0.001", "0.003"),
    seeds=2,
)
