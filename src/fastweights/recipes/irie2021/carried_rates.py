"""The learning rate of every model of Table 1 with full context and with windows, chosen on validation data."""

from fastweights.core.metric import Display
from fastweights.recipes._rates import rate_search_by_place
from fastweights.recipes.irie2021.table_1 import EXPERIMENT as TABLE_1

EXPERIMENT = rate_search_by_place(
    "Learning rates for word-level language models with full context",
    "irie2021/table-1",
    TABLE_1,
    Display("validation perplexity", data="validation"),
    [(model, column) for model, column in TABLE_1.presets["cpu"].places if column != "truncated"],
    rates=("0.001", "0.002", "0.004", "0.008"),
    seeds=2,
)
