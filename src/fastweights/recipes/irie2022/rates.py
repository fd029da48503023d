"""The learning rate of every network of Table 1 for characters of which one drawing is shown, on validation data."""

from fastweights.core.metric import Display
from fastweights.recipes._rates import rate_search
from fastweights.recipes.irie2022._networks import MODELS as ALL
from fastweights.recipes.irie2022.table_1 import CONV_4, RATES, trial

# A fake SRWM knows of no other picture: with any rate it can only guess.
MODELS = {model: ALL[model] for model in CONV_4 if model != "fake-srwm"}
COLUMN, HIGHEST = "omniglot-1", "0.01"

EXPERIMENT = rate_search(
    "Learning rates for few-shot learning of characters",
    "irie2022/table-1",
    Display("validation accuracy, %", "percent", "validation"),
    MODELS,
    lambda model, preset: trial(model, COLUMN, preset),
    rates=("0.0003", "0.001", "0.003", HIGHEST),
    seeds=1,
    # Those that are best with the rate of the column need none beyond the one above it.
    skip=frozenset((model, HIGHEST) for model in MODELS if (model, COLUMN) not in RATES),
)
