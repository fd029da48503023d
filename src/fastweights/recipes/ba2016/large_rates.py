"""The learning rate of every network of Table 1 with 50 and 100 units, chosen on validation data."""

from fastweights.core.metric import Display
from fastweights.recipes._rates import rate_search
from fastweights.recipes.ba2016.table_1 import EXPERIMENT as TABLE_1
from fastweights.recipes.ba2016.table_1 import FAST, MODELS, trial

ROWS = {f"{m}+{units}": (m, units) for units in ("50", "100") for m in MODELS}
SKIPPED = frozenset((row, "0.0001") for row, (model, _) in ROWS.items() if model != FAST) | frozenset(
    (row, "0.003") for row, (model, _) in ROWS.items() if model == FAST
)
"""Fast weights are best at a smaller rate than the others with 20 units."""

EXPERIMENT = rate_search(
    "Learning rates for associative retrieval with 50 and 100 units",
    "ba2016/table-1",
    Display("validation error, %", "error", "validation"),
    {row: f"{MODELS[model]}, {TABLE_1.columns[units]}" for row, (model, units) in ROWS.items()},
    lambda row, preset: trial(*ROWS[row], preset),
    rates=("0.0001", "0.0003", "0.001", "0.003"),
    seeds=1,
    skip=SKIPPED,
)
