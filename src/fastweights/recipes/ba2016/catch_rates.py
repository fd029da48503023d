"""The learning rate of every network of Figure 5 on either screen, chosen on validation data."""

from fastweights.core.metric import Display
from fastweights.recipes._rates import rate_search_by_place
from fastweights.recipes.ba2016.figure_5 import COLUMNS, MODELS
from fastweights.recipes.ba2016.figure_5 import EXPERIMENT as FIGURE_5

SKIPPED = frozenset((f"{model}+{column}", "0.0035") for column in COLUMNS for model in MODELS if model != "irnn")
"""Only the ReLU network learns nothing at 0.006 on the larger screen; its search has an additional rate below."""

EXPERIMENT = rate_search_by_place(
    "Learning rates for Catch",
    "ba2016/figure-5",
    FIGURE_5,
    Display("validation return", data="validation"),
    [(model, column) for column in COLUMNS for model in MODELS],
    rates=("0.0006", "0.002", "0.0035", "0.006", "0.02"),
    seeds=2,
    skip=SKIPPED,
)
