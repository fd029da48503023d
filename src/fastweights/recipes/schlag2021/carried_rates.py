"""The learning rates of Table 4, with a carried state and with windows, chosen on validation data."""

from fastweights.core.metric import Display
from fastweights.recipes._rates import rate_search
from fastweights.recipes.schlag2021.table_4 import COLUMNS, MODELS, trial
from fastweights.recipes.schlag2021.table_4 import EXPERIMENT as TABLE

ROWS = {f"{model}+{column}": (model, column) for model, column in TABLE.presets["cpu"].places}

EXPERIMENT = rate_search(
    "Learning rates for word models with a carried state",
    "schlag2021/table-4",
    Display("validation perplexity", data="validation"),
    {row: f"{MODELS[model]}, {COLUMNS[column]}" for row, (model, column) in ROWS.items()},
    lambda row, preset: trial(*ROWS[row], preset),
    rates=("0.001", "0.002", "0.004", "0.008"),
    seeds=2,
)
