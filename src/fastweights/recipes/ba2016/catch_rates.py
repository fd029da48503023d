"""The learning rate of every network of Figure 5 on either screen, chosen on validation data."""

from fastweights.metric import RETURN
from fastweights.recipes._rates import rate_search
from fastweights.recipes.ba2016.figure_5 import COLUMNS, MODELS, trial

EXPERIMENT = rate_search(
    "Learning rates for Catch",
    "ba2016/figure-5",
    RETURN.told("plain", "validation return", "validation"),
    {f"{model}+{column}": f"{MODELS[model]}, {COLUMNS[column]}" for column in COLUMNS for model in MODELS},
    lambda row, preset: trial(*row.split("+"), preset),
    rates=("0.0006", "0.002", "0.006", "0.02"),
    seeds=2,
)
