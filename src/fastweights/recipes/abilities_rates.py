"""The learning rate of every memory of `abilities`, chosen on validation data of two of its tasks."""

from fastweights.core.metric import Display
from fastweights.recipes._rates import rate_search_by_place
from fastweights.recipes.abilities import COMPARED, RECALLED, SEARCHED
from fastweights.recipes.abilities import EXPERIMENT as TABLE

EXPERIMENT = rate_search_by_place(
    "Learning rates for every ability",
    "abilities",
    TABLE,
    Display("validation accuracy, %", "percent", "validation"),
    [(model, column) for column in (*SEARCHED, RECALLED) for model in COMPARED],
    rates=("0.002", "0.004", "0.008", "0.016", "0.032", "0.064"),
    seeds=3,
)
