"""The learning rate of every network of Table 1 in every column of preset cpu, chosen on validation data."""

from fastweights.core.metric import Display
from fastweights.recipes._rates import rate_search_by_place
from fastweights.recipes.irie2022.table_1 import EXPERIMENT as TABLE_1

EXPERIMENT = rate_search_by_place(
    "Learning rates for few-shot classification",
    "irie2022/table-1",
    TABLE_1,
    Display("validation accuracy, %", "percent", "validation"),
    # A fake SRWM has no access to other images of its episode. It stays at chance for every rate.
    [(model, column) for model, column in TABLE_1.presets["cpu"].places if model != "fake-srwm"],
    rates=("0.001", "0.003", "0.01"),
    seeds=2,
)
