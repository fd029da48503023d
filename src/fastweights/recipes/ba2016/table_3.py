"""Faces of people never seen before, through 24 glimpses: accuracy of the networks of Table 2."""

from typing import Any

from fastweights.experiments.experiment import Claim, Experiment, Preset, Trial, table
from fastweights.metric import ACCURACY
from fastweights.recipes.ba2016._glimpses import MODELS, NOTES
from fastweights.recipes.ba2016._glimpses import trial as glimpses

TRAINING: dict[str, dict[str, Any]] = {
    "smoke": {"steps": 4, "evaluate_every": 4},
    "cpu": {"steps": 1_500, "evaluate_every": 50},
    "paper": {"steps": 20_000, "evaluate_every": 100, "patience": 50},
}
COLUMNS = {"expression": "expression", "pose": "pose"}


def trial(model: str, column: str, preset: str) -> Trial:
    """As many units as in the paper, to say what the column says of a face."""
    units = 20 if preset == "smoke" else 200
    return glimpses("face-glimpses", {"label": column}, model, units, 1e-3, TRAINING[preset])


EXPERIMENT = Experiment(
    title="Faces as 24 glimpses of 12 x 12 pixels",
    source="Ba, Hinton, Mnih, Leibo and Ionescu 2016, Sec. 4.3, Table 3",
    metric=ACCURACY.told("percent", "test accuracy, %"),
    models=MODELS,
    columns=COLUMNS,
    published=table(
        ("expression",),
        {
            "irnn": (81.11,),
            "lstm": (81.32,),
            "glimpse-network": (88.23,),
            "multi-level-fast-weight-rnn": (86.34,),
        },
    ),
    presets={
        "smoke": Preset(("pose",), tuple(MODELS)),
        "cpu": Preset(tuple(COLUMNS), tuple(MODELS)),
        "paper": Preset(tuple(COLUMNS), tuple(MODELS), seeds=3),
    },
    trial=trial,
    claims=(
        Claim(
            "Fast weights tell expressions better than the LSTM and the IRNN.",
            lambda mean: (
                mean("multi-level-fast-weight-rnn", "expression")
                > max(mean("lstm", "expression"), mean("irnn", "expression"))
            ),
        ),
    ),
    notes=(
        "The paper's numbers are for six expressions of 337 people in more than 100,000 pictures (CMU Multi-PIE, "
        "licensed). Ours are for the 20 people of the CMU Face Images, with four slight expressions and four poses: "
        "the order of the models can be compared, the numbers cannot.",
        *NOTES,
        "The paper states no training settings: Adam 1e-3, batches of 128 and a clip of 5 for all models alike.",
        "The paper's ConvNet has two layers here.",
    ),
)
