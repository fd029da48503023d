"""The learning rate of every network of Figure 5 on either screen, chosen on validation data."""

from fastweights.core.metric import Display
from fastweights.recipes._rates import rate_search
from fastweights.recipes.ba2016.figure_5 import COLUMNS, MODELS, trial

ROWS = {f"{model}+{column}": (model, column) for column in COLUMNS for model in MODELS}

SKIPPED = frozenset((row, "0.0035") for row, (model, _) in ROWS.items() if model != "irnn")
"""Only the ReLU network learns nothing at 0.006 on the larger screen, so that its search has a rate between."""

EXPERIMENT = rate_search(
    "Learning rates for Catch",
    "ba2016/figure-5",
    Display("validation return", data="validation"),
    {row: f"{MODELS[model]}, {COLUMNS[column]}" for row, (model, column) in ROWS.items()},
    lambda row, preset: trial(*ROWS[row], preset),
    rates=("0.0006", "0.002", "0.0035", "0.006", "0.02"),
    seeds=2,
    skip=SKIPPED,
)
