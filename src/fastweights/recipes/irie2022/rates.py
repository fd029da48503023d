"""The learning rate of every network of Table 1 in every column of preset cpu, chosen on validation data."""

from fastweights.core.metric import Display
from fastweights.recipes._rates import rate_search
from fastweights.recipes.irie2022._networks import MODELS
from fastweights.recipes.irie2022.table_1 import COLUMNS, trial
from fastweights.recipes.irie2022.table_1 import EXPERIMENT as TABLE_1

# A fake SRWM sees no other image of its episode. It can only guess, whatever the rate.
ROWS = {f"{m}+{c}": (m, c) for m, c in TABLE_1.presets["cpu"].places if m != "fake-srwm"}

EXPERIMENT = rate_search(
    "Learning rates for few-shot classification",
    "irie2022/table-1",
    Display("validation accuracy, %", "percent", "validation"),
    {row: f"{MODELS[model]}, {COLUMNS[column].label}" for row, (model, column) in ROWS.items()},
    lambda row, preset: trial(*ROWS[row], preset),
    rates=("0.001", "0.003", "0.01"),
    seeds=2,
)
