"""The learning rate of every model of Table 2 in code execution with 3 variables, chosen on validation data."""

from fastweights.core.metric import Display
from fastweights.recipes._rates import rate_search
from fastweights.recipes.irie2021.table_2 import MODELS, trial

SKIPPED = frozenset(
    [(m, "0.004") for m in MODELS if m != "lstm"] + [(m, "0.00025") for m in MODELS if m != "delta-rnn"]
)
"""In an earlier search of 12,000 updates, with one seed, only the LSTM was best above 1e-3. Only the Delta RNN is best
at 5e-4, so that only its search has a smaller rate."""

EXPERIMENT = rate_search(
    "Learning rates for code execution with 3 variables",
    "irie2021/table-2",
    Display("validation accuracy, %", "percent", "validation"),
    MODELS,
    lambda model, preset: trial(model, "code-3", preset),
    rates=("0.00025", "0.0005", "0.001", "0.002", "0.004"),
    seeds=2,
    skip=SKIPPED,
)
