"""Searches for the learning rates of the models of a table, as separate experiments."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from fastweights.core.metric import Display
from fastweights.experiments.experiment import Experiment, Preset, Trial


def rate_search(
    title: str,
    table: str,
    display: Display,
    models: Mapping[str, str],
    trial: Callable[[str, str], Trial],
    rates: tuple[str, ...],
    seeds: int,
    skip: frozenset[tuple[str, str]] = frozenset(),
    fold: str = "",
) -> Experiment:
    """The search for one learning rate per model of a table.

    Args:
        title: Title of one line.
        table: Name of the table, such as "ba2016/table-1".
        display: Label, form and data of the numbers.
        models: Labels of the models.
        trial: Trial of a model and a preset; the search changes only its learning rate.
        rates: The learning rates, one per column.
        seeds: Number of seeds.
        skip: Models and rates that are not run.
        fold: Option of the task that takes the seed, as in `Experiment`.
    """

    def with_rate(model: str, column: str, preset: str) -> Trial:
        one = trial(model, preset)
        training: Any = one.training
        return one._replace(training=replace(training, learning_rate=float(column)))

    return Experiment(
        title=title,
        source=f"The search behind {table}",
        display=display,
        models=models,
        columns={rate: f"rate {rate}" for rate in rates},
        published={},
        presets={
            "smoke": Preset(rates[-2:], tuple(models)[:2]),
            "cpu": Preset(rates, tuple(models), seeds, skip),
        },
        trial=with_rate,
        fold=fold,
        sanity="A search needs no check: each rate is a column, so that a model that never learns is visible.",
        notes=(f"{table} uses, for every network, the rate with the best mean over seeds.",),
    )


def rate_search_by_place(
    title: str,
    name: str,
    table: Experiment,
    display: Display,
    places: Iterable[tuple[str, str]],
    rates: tuple[str, ...],
    seeds: int,
    skip: frozenset[tuple[str, str]] = frozenset(),
) -> Experiment:
    """The search for one learning rate per place of a table.

    Args:
        title: Title of one line.
        name: Name of the table, such as "ba2016/table-1".
        table: The table.
        display: Label, form and data of the numbers.
        places: Models and columns of the table. The row of a place is named `MODEL+COLUMN`.
        rates: The learning rates, one per column.
        seeds: Number of seeds.
        skip: Rows and rates that are not run.
    """
    rows = {f"{model}+{column}": (model, column) for model, column in places}
    labels = {row: f"{table.models[model]}, {table.columns[column]}" for row, (model, column) in rows.items()}
    return rate_search(
        title, name, display, labels, lambda row, preset: table.trial(*rows[row], preset), rates, seeds, skip
    )
