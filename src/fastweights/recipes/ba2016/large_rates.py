"""The learning rate of every network of Table 1 with 50 and 100 units, chosen on validation data."""

from fastweights.core.metric import Display
from fastweights.recipes._rates import rate_search_by_place
from fastweights.recipes.ba2016.table_1 import EXPERIMENT as TABLE_1
from fastweights.recipes.ba2016.table_1 import FAST, MODELS

PLACES = [(model, units) for units in ("50", "100") for model in MODELS]
SKIPPED = frozenset((f"{model}+{units}", "0.003" if model == FAST else "0.0001") for model, units in PLACES)
"""With 20 units, fast weights have a smaller best rate than the other networks."""

EXPERIMENT = rate_search_by_place(
    "Learning rates for associative retrieval with 50 and 100 units",
    "ba2016/table-1",
    TABLE_1,
    Display("validation error, %", "error", "validation"),
    PLACES,
    rates=("0.0001", "0.0003", "0.001", "0.003"),
    seeds=1,
    skip=SKIPPED,
)
