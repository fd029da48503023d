"""The learning rate of every model of Table 2 in ListOps of depth 10, chosen on validation data."""

from fastweights.core.metric import Display
from fastweights.recipes._rates import rate_search
from fastweights.recipes.irie2021.table_2 import MODELS, trial

LOWEST = {
    "lstm": "0.001",
    "softmax-attention": "0.000125",
    "linear": "0.000125",
    "delta-net": "0.00025",
    "delta-rnn": "0.0005",
    "recurrent-delta-net": "0.00025",
}
"""The smallest rate of each model: the search ends at the first rate that is worse than the next larger one."""
RATES = ("0.000125", "0.00025", "0.0005", "0.001", "0.002", "0.004")

EXPERIMENT = rate_search(
    "Learning rates for ListOps of depth 10",
    "irie2021/table-2",
    Display("validation accuracy, %", "percent", "validation"),
    MODELS,
    lambda model, preset: trial(model, "list-ops-10", preset),
    rates=RATES,
    seeds=2,
    skip=frozenset((m, rate) for m in MODELS for rate in RATES if float(rate) < float(LOWEST[m])),
)
