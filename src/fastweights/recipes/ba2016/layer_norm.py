"""Associative retrieval with and without layer normalisation of the fast weights, over learning rates and decays."""

from dataclasses import replace
from typing import Any

from fastweights.core.metric import Display
from fastweights.experiments.claim import Above, Claim, Gap
from fastweights.experiments.experiment import Experiment, Preset, Trial
from fastweights.recipes.ba2016 import table_1
from fastweights.recipes.ba2016.table_1 import FAST

PLAIN = "plain"
MODELS = {FAST: "Fast weights with layer normalisation", PLAIN: "Fast weights without"}
UNITS = "20"
OWN = "0.5-0.95"
"""The paper's rate eta and decay lambda."""

COLUMNS = {
    OWN: "eta = 0.5, lambda = 0.95",
    "0.1-0.95": "eta = 0.1, lambda = 0.95",
    "1.0-0.95": "eta = 1, lambda = 0.95",
    "0.5-0.7": "eta = 0.5, lambda = 0.7",
    "0.5-1.0": "eta = 0.5, lambda = 1",
}
LENGTH: dict[str, dict[str, Any]] = {"smoke": {}, "cpu": {"steps": 30_000}, "paper": {}}


def trial(model: str, column: str, preset: str) -> Trial:
    """The network of Table 1 with 20 units, with the rate and the decay of a column."""
    one = table_1.trial(FAST, UNITS, preset)
    eta, decay = map(float, column.split("-"))
    options = {"rate": eta, "decay": decay, **({"layer_norm": False} if model == PLAIN else {})}
    training = replace(one.training, **LENGTH[preset])
    return one._replace(model_options={**one.model_options, "options": options}, training=training)


def _change(model: str, column: str) -> Gap:
    """The error at another rate or decay minus that at the paper's."""
    return Gap((model, column), (model, OWN))


EXPERIMENT = Experiment(
    title="Associative retrieval with and without layer normalisation of the fast weights",
    source="Ba, Hinton, Mnih, Leibo and Ionescu 2016, Sec. 3.1",
    display=Display("test error, %", "error"),
    models=MODELS,
    columns=COLUMNS,
    published={},
    presets={
        "smoke": Preset((OWN, "0.1-0.95"), tuple(MODELS)),
        "cpu": Preset(tuple(COLUMNS), tuple(MODELS), seeds=3),
        "paper": Preset(tuple(COLUMNS), tuple(MODELS), seeds=3),
    },
    trial=trial,
    claims=(
        Claim(
            "Applying layer normalization on each iteration of the inner loop makes the fast associative memory more "
            "robust to the choice of learning rate and decay hyper-parameters.",
            "Sec. 3.1",
            tuple(Above(_change(PLAIN, column), _change(FAST, column)) for column in COLUMNS if column != OWN),
        ),
    ),
    notes=(
        "The paper prints the sentence without an experiment. Task, network and training are those of Table 1 with 20 "
        "units; the other rates and decays are ours. Adam's learning rate of 0.0001 is the best of ba2016/rates for "
        "the network with layer normalisation, and was not searched for the one without.",
        "The claim compares the increase of the test error over that with the paper's rate and decay.",
    ),
    sanity="The paper has no numbers, and some of these rates and decays are too large on purpose.",
)
