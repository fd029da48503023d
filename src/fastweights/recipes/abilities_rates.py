"""The learning rate of every memory of `abilities`, chosen on validation data of two of its tasks."""

from collections.abc import Iterable
from dataclasses import replace

from fastweights.core.metric import Display
from fastweights.experiments.experiment import Preset
from fastweights.recipes._rates import rate_search_by_place
from fastweights.recipes.abilities import COMPARED, OTHERS, RECALLED, SEARCHED
from fastweights.recipes.abilities import EXPERIMENT as TABLE

RATES = ("0.002", "0.004", "0.008", "0.016", "0.032", "0.064")


def _places(models: Iterable[str]) -> list[tuple[str, str]]:
    """The memories with the columns for which their rates are searched."""
    return [(model, column) for column in (*SEARCHED, RECALLED) for model in models]


def _rows(models: Iterable[str]) -> tuple[str, ...]:
    return tuple(f"{model}+{column}" for model, column in _places(models))


PRESETS = {"cpu": Preset(RATES, _rows(COMPARED), seeds=3), "others": Preset(RATES, _rows(OTHERS), seeds=3)}
SEARCH = rate_search_by_place(
    "Learning rates for every ability",
    "abilities",
    TABLE,
    Display("validation accuracy, %", "percent", "validation"),
    _places(COMPARED | OTHERS),
    rates=RATES,
    seeds=3,
)
EXPERIMENT = replace(SEARCH, presets={**SEARCH.presets, **PRESETS})
