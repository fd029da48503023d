"""The learning rate of every network of Table 1, chosen on validation data."""

from fastweights.metric import ACCURACY
from fastweights.recipes._rates import rate_search
from fastweights.recipes.ba2016.table_1 import MODELS, trial

SKIPPED = frozenset(
    {("irnn", "0.0001"), ("lstm", "0.0001"), ("associative-lstm", "0.0001"), ("fast-weight-rnn", "0.003")}
)
"""Within 20,000 updates the first three do not begin to learn at such a rate, and fast weights want a smaller one than
others: each has the three that are nearest to its best."""

EXPERIMENT = rate_search(
    "Learning rates for associative retrieval with 20 units",
    "ba2016/table-1",
    ACCURACY.told("error", "validation error, %", "validation"),
    MODELS,
    lambda model, preset: trial(model, "20", preset),
    rates=("0.0001", "0.0003", "0.001", "0.003"),
    seeds=2,
    skip=SKIPPED,
)
