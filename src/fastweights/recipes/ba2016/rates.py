"""The learning rate of every network of Table 1, chosen on validation data."""

from fastweights.core.metric import Display
from fastweights.recipes._rates import rate_search
from fastweights.recipes.ba2016.table_1 import MODELS, trial

SKIPPED = frozenset((m, rate) for m in MODELS if m != "fast-weight-rnn" for rate in ("0.00003", "0.0001"))
"""Fast weights are as good at 1e-4 as at 3e-4, so that their search has a smaller rate. The others are worse at 3e-4
than at 1e-3, and were at chance at 1e-4 after 20,000 updates of an earlier search."""

EXPERIMENT = rate_search(
    "Learning rates for associative retrieval with 20 units",
    "ba2016/table-1",
    Display("validation error, %", "error", "validation"),
    MODELS,
    lambda model, preset: trial(model, "20", preset),
    rates=("0.00003", "0.0001", "0.0003", "0.001", "0.003"),
    seeds=2,
    skip=SKIPPED,
)
