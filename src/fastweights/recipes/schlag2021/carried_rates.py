"""The learning rates of Table 4, with a carried state and with windows, chosen on validation data."""

from fastweights.core.metric import Display
from fastweights.recipes._rates import rate_search_by_place
from fastweights.recipes.schlag2021.table_4 import EXPERIMENT as TABLE_4

EXPERIMENT = rate_search_by_place(
    "Learning rates for word-level language models with a carried state",
    "schlag2021/table-4",
    TABLE_4,
    Display("validation perplexity", data="validation"),
    TABLE_4.presets["cpu"].places,
    rates=("0.001", "0.002", "0.004", "0.008"),
    seeds=2,
)
