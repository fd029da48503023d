"""The learning rate of every model of Table 1 with full context and with windows, chosen on validation data."""

from fastweights.core.metric import Display
from fastweights.recipes._rates import rate_search
from fastweights.recipes.irie2021.table_1 import COLUMNS, MODELS, trial
from fastweights.recipes.irie2021.table_1 import EXPERIMENT as TABLE

ROWS = {f"{m}+{c}": (m, c) for m, c in TABLE.presets["cpu"].places if c != "truncated"}

EXPERIMENT = rate_search(
    "Learning rates for word models with full context",
    "irie2021/table-1",
    Display("validation perplexity", data="validation"),
    {row: f"{MODELS[model]}, {COLUMNS[column]}" for row, (model, column) in ROWS.items()},
    lambda row, preset: trial(*ROWS[row], preset),
    rates=("0.001", "0.002", "0.004", "0.008"),
    seeds=2,
)
