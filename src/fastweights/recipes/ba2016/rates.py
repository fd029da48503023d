"""The learning rate of every network of Table 1, chosen on validation data."""

from dataclasses import replace

from fastweights.experiment import Experiment, Metric, Preset, Trial
from fastweights.recipes.ba2016.table_1 import MODELS
from fastweights.recipes.ba2016.table_1 import trial as table_1

RATES = ("0.0001", "0.0003", "0.001", "0.003")
UPDATES = 20_000


def trial(model: str, column: str, preset: str) -> Trial:
    """The network with 20 units, trained as for Table 1 but not as long."""
    one = table_1(model, "20", preset)
    steps = min(one.training.steps, UPDATES)
    return one._replace(training=replace(one.training, learning_rate=float(column), steps=steps))


EXPERIMENT = Experiment(
    title="Learning rates for associative retrieval with 20 units",
    source="the search behind ba2016/table-1",
    metric=Metric("error", "validation error, %", "validation"),
    models=MODELS,
    columns={rate: f"Adam {rate}" for rate in RATES},
    published={},
    presets={
        "smoke": Preset(("0.001", "0.003"), ("lstm", "fast-weight-rnn")),
        "cpu": Preset(RATES, tuple(MODELS), seeds=3),
    },
    trial=trial,
    notes=("Table 1 takes for every network the rate whose mean over seeds is best here.",),
)
