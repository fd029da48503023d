"""The search for learning rates of Table 3, for expressions or poses of faces."""

from fastweights.core.metric import Display
from fastweights.experiments.experiment import Experiment
from fastweights.recipes._rates import rate_search
from fastweights.recipes.ba2016._glimpses import MODELS
from fastweights.recipes.ba2016.table_3 import trial


def face_rates(label: str, rates: tuple[str, ...], skip: frozenset[tuple[str, str]]) -> Experiment:
    """The search over all networks, on four folds of the people.

    Args:
        label: "expression" or "pose".
        rates: The learning rates.
        skip: Networks and rates that are not run.
    """
    return rate_search(
        f"Learning rates for the {label}s of faces as 24 glimpses",
        "ba2016/table-3",
        Display("validation accuracy, %", "percent", "validation"),
        MODELS,
        lambda model, preset: trial(model, label, preset),
        rates=rates,
        seeds=4,
        skip=skip,
        fold="fold",
    )
