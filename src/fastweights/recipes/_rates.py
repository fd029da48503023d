"""The search for the learning rate of every network of a table, as an experiment of its own."""

from collections.abc import Callable, Mapping
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
    """The models of `table`, each with its `trial(model, preset)`, as long as there, but another rate.

    `skip` is that of `Preset`, `fold` that of `Experiment`.
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
        sanity="A search needs no check: each rate is a column, and a model that learns at none stands out.",
        notes=(f"{table} takes for every network the rate whose mean over seeds is best here.",),
    )
