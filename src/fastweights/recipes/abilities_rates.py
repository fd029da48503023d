"""The learning rate of every memory of `abilities`, chosen on validation data of two of its tasks."""

from collections.abc import Collection
from dataclasses import replace

from fastweights.core.metric import Display
from fastweights.experiments.experiment import Preset
from fastweights.recipes._rates import rate_search_by_place
from fastweights.recipes.abilities import COMPARED, OTHERS, RECALLED, SEARCHED
from fastweights.recipes.abilities import EXPERIMENT as TABLE

SEARCH = rate_search_by_place(
    "Learning rates for every ability",
    "abilities",
    TABLE,
    Display("validation accuracy, %", "percent", "validation"),
    [(model, column) for column in (*SEARCHED, RECALLED) for model in (*COMPARED, *OTHERS)],
    rates=("0.001", "0.002", "0.004", "0.008", "0.016", "0.032", "0.064"),
    seeds=3,
)


def _preset(models: Collection[str]) -> Preset:
    """The search for some of the memories."""
    return SEARCH.presets["cpu"]._replace(models=tuple(row for row in SEARCH.models if row.partition("+")[0] in models))


PRESETS = {"cpu": _preset(COMPARED), "others": _preset(OTHERS)}
EXPERIMENT = replace(SEARCH, presets={**SEARCH.presets, **PRESETS})
