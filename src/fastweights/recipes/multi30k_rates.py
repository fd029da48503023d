"""The learning rate of every translator of captions, chosen on validation data."""

from fastweights.core.metric import Display
from fastweights.recipes._rates import rate_search
from fastweights.recipes.multi30k import COLUMN, MODELS, trial

EXPERIMENT = rate_search(
    "Learning rates for captions from English to German",
    "multi30k",
    Display("validation BLEU", data="validation"),
    MODELS,
    lambda model, preset: trial(model, COLUMN, preset),
    rates=("0.001", "0.002", "0.004"),
    seeds=1,
)
