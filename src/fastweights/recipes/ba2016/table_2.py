"""MNIST seen through 24 glimpses: test error of a memory of parts beside networks without one."""

from typing import Any

from fastweights.experiments.experiment import Claim, Experiment, Preset, Trial, table
from fastweights.metric import ACCURACY
from fastweights.recipes.ba2016._glimpses import MODELS, NOTES
from fastweights.recipes.ba2016._glimpses import trial as glimpses

FEATURES = ("50", "100", "200")
RATES = {"irnn": 1e-3, "lstm": 3e-3, "glimpse-network": 3e-3, "multi-level-fast-weight-rnn": 1e-3}
"""Adam's learning rates, the best on validation data in `ba2016/glimpse-rates`."""

TRAINING: dict[str, dict[str, Any]] = {
    "smoke": {"steps": 4, "evaluate_every": 4},
    "cpu": {"steps": 10_000, "evaluate_every": 400},
    "paper": {"steps": 40_000, "evaluate_every": 400, "patience": 30},
}


def trial(model: str, column: str, preset: str) -> Trial:
    """As many features as the column says."""
    return glimpses("mnist-glimpses", {}, model, int(column), RATES[model], TRAINING[preset])


EXPERIMENT = Experiment(
    title="MNIST as 24 glimpses of 7 x 7 pixels",
    source="Ba, Hinton, Mnih, Leibo and Ionescu 2016, Sec. 4.2, Table 2",
    metric=ACCURACY.told("error", "test error, %"),
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
        "smoke": Preset(("50",), tuple(MODELS)),
        "cpu": Preset(("50",), tuple(MODELS), seeds=3),
        "paper": Preset(FEATURES, tuple(MODELS), seeds=3),
    },
    trial=trial,
    claims=(
        Claim(
            "With 50 features, fast weights err less than the LSTM and the IRNN.",
            lambda mean: mean("multi-level-fast-weight-rnn", "50") < min(mean("lstm", "50"), mean("irnn", "50")),
        ),
        Claim(
            "With 50 features, the ConvNet errs least.",
            lambda mean: (
                mean("glimpse-network", "50") < min(mean(model, "50") for model in MODELS if model != "glimpse-network")
            ),
        ),
    ),
    notes=(
        *NOTES,
        "The paper states no training settings. Batches of 128, a clip of 5 and the number of updates are ours; the "
        "learning rates are the best on validation data of 3e-4, 1e-3, 3e-3 and 1e-2, by ba2016/glimpse-rates.",
        "The last 10,000 training images are for validation.",
    ),
)
