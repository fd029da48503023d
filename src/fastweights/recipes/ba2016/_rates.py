"""The search for the learning rate of every network of a table, as an experiment of its own."""

from collections.abc import Callable, Mapping
from dataclasses import replace

from fastweights.experiments.experiment import Experiment, Preset, Trial
from fastweights.metric import ACCURACY
from fastweights.training.settings.supervised import Supervised


def rate_search(
    title: str,
    table: str,
    models: Mapping[str, str],
    trial: Callable[[str, str], Trial],
    rates: tuple[str, ...],
    updates: int,
    seeds: int,
) -> Experiment:
    """The models of `table`, each with its `trial(model, preset)` but another rate, and no more than `updates`."""

    def with_rate(model: str, column: str, preset: str) -> Trial:
        one = trial(model, preset)
        assert isinstance(one.training, Supervised)
        steps = min(one.training.steps, updates)
        return one._replace(training=replace(one.training, learning_rate=float(column), steps=steps))

    return Experiment(
        title=title,
        source=f"The search behind {table}",
        metric=ACCURACY.told("error", "validation error, %", "validation"),
        models=models,
        columns={rate: f"Adam {rate}" for rate in rates},
        published={},
        presets={
            "smoke": Preset(("0.001", "0.003"), tuple(models)),
            "cpu": Preset(rates, tuple(models), seeds=seeds),
        },
        trial=with_rate,
        notes=(f"{table} takes for every network the rate whose mean over seeds is best here.",),
    )
