"""MNIST as 24 glimpses: test errors of networks with and without a memory of parts."""

from typing import Any

from fastweights.core.metric import Display
from fastweights.experiments.claim import Claim, below, places
from fastweights.experiments.experiment import Experiment, Preset, Sanity, Trial, table
from fastweights.recipes.ba2016._glimpses import MODELS as NETWORKS
from fastweights.recipes.ba2016._glimpses import NOTES, SCHEDULES
from fastweights.recipes.ba2016._glimpses import trial as glimpses

FAST, CONVNET = "multi-level-fast-weight-rnn", "glimpse-network"
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "lstm-as-large": ("lstm", {"units": 25}),
    "by-quadrant": (FAST, {"signals": SCHEDULES["quadrant"]}),
    "two-inner-steps": (FAST, {"options": {"inner_steps": 2}}),
    "no-fast-weights": (FAST, {"options": {"rate": 0.0}}),
    "never-wiped": (FAST, {"options": {"rate": 0.0}, "signals": {**SCHEDULES["coarse"], "store": [False] * 24}}),
}
"""Networks with 50 features that are not in the paper: a network of the paper, and the options that change."""

MODELS = {
    **NETWORKS,
    "lstm-as-large": "LSTM, as many parameters as fast weights",
    "by-quadrant": "Fast weights, stored when a quadrant is done",
    "two-inner-steps": "Fast weights, S = 2",
    "no-fast-weights": "Fast weights, eta = 0, state wiped",
    "never-wiped": "Fast weights, eta = 0, state kept",
}
FEATURES = ("50", "100", "200")
RATES = {"irnn": 1e-3, "lstm": 1e-3, "glimpse-network": 3e-3, "multi-level-fast-weight-rnn": 1e-3}
"""Adam's learning rates, the best on validation data in `ba2016/glimpse-rates`."""

TRAINING: dict[str, dict[str, Any]] = {
    "smoke": {"steps": 4, "evaluate_every": 4},
    "cpu": {"steps": 40_000, "evaluate_every": 400, "patience": 15},
    "paper": {"steps": 40_000, "evaluate_every": 400, "patience": 30},
}


def trial(model: str, column: str, preset: str) -> Trial:
    """A network with the number of features of a column."""
    network, changes = VARIANTS.get(model, (model, {}))
    one = glimpses("mnist-glimpses", {}, network, int(column), RATES[network], TRAINING[preset])
    return one._replace(model_options={**one.model_options, **changes})


EXPERIMENT = Experiment(
    title="MNIST as 24 glimpses of 7 x 7 pixels",
    source="Ba, Hinton, Mnih, Leibo and Ionescu 2016, Sec. 4.2, Table 2",
    display=Display("test error, %", "error"),
    models=MODELS,
    columns={features: f"{features} features" for features in FEATURES},
    published=table(
        FEATURES,
        {
            "irnn": (12.95, 1.95, 1.42),
            "lstm": (12.0, 1.55, 1.10),
            "glimpse-network": (1.81, 1.00, 0.9),
            "multi-level-fast-weight-rnn": (7.21, 1.30, 0.85),
        },
    ),
    presets={
        "smoke": Preset(("50",), tuple(NETWORKS)),
        "cpu": Preset(("50", "100"), tuple(MODELS), seeds=3, skip=frozenset((m, "100") for m in VARIANTS)),
        "paper": Preset(FEATURES, tuple(NETWORKS), seeds=3),
    },
    trial=trial,
    claims=(
        Claim(
            "When the number of hidden units is limited, fast weights give a significant improvement over the other "
            "models.",
            "Sec. 4.2",
            below((FAST, "50"), *places("50", "lstm", "irnn")),
        ),
        Claim(
            "As we increase the memory capacities, the multi-level fast associative memory consistently outperforms "
            "the LSTM.",
            "Sec. 4.2",
            (*below((FAST, "100"), ("lstm", "100")), *below((FAST, "200"), ("lstm", "200"))),
        ),
        Claim(
            "The multi-level model with fast weights reaches a very similar performance to the ConvNet: within half a "
            "per cent, from 100 features on.",
            "Sec. 4.2",
            tuple(part for n in ("100", "200") for part in below((FAST, n), (CONVNET, n), by=-0.5)),
        ),
        Claim(
            "With 50 features, the ConvNet has the lowest error.",
            "Table 2",
            below((CONVNET, "50"), *places("50", *(model for model in NETWORKS if model != CONVNET))),
        ),
    ),
    notes=(
        *NOTES,
        "The rows that are not in the paper test the effect of parameters, marked steps, inner steps and fast weights. "
        "With eta = 0 there are no fast weights. If the state is cleared at the marks, that network only has the last "
        "quadrant; otherwise it is a network of rectified linear units with layer normalisation.",
        "The rates were searched with 50 features.",
        "The paper states no training settings. Batches of 128, a maximum gradient norm of 5 and the number of "
        "training steps are our choice. The learning rates are the best on validation data of 3e-4, 1e-3, 3e-3 and "
        "1e-2, by ba2016/glimpse-rates.",
        "The last 10,000 training images are for validation.",
    ),
    sanity=Sanity(
        columns=("50",),
        bound=12.0,
        # Its state is cleared four times, so that it only has the last quadrant.
        own={"no-fast-weights": 45.0},
        training={"steps": 1_600, "patience": 0},
    ),
)
