"""Key-value retrieval, setting 2: whether a memory can replace what it stored, by rule."""

from fastweights.experiments.experiment import Claim, Experiment, Preset
from fastweights.recipes.schlag2021._retrieval import METRIC, SOLVED
from fastweights.recipes.schlag2021.figure_5 import COLUMNS, MODELS, NOTES_OF_UPDATES, trial
from fastweights.recipes.schlag2021.figure_5 import EXPERIMENT as FIGURE_5

EXPERIMENT = Experiment(
    title="Retrieval of the last of several values: learning curves",
    source="Schlag, Irie and Schmidhuber 2021, Sec. 6.1.2, Figure 3",
    metric=METRIC,
    models=MODELS,
    columns={"20": COLUMNS["20"]},
    published={place: number for place, number in FIGURE_5.published.items() if place[1] == "20"},
    presets={name: Preset(("20",), tuple(MODELS)) for name in ("smoke", "cpu", "paper")},
    trial=trial,
    claims=(
        Claim("The delta rule learns setting 2 with 20 keys.", lambda mean: mean("delta-dpfp-1", "20") <= SOLVED),
        Claim("The sum rule does not.", lambda mean: mean("sum-dpfp-1", "20") > SOLVED),
        Claim(
            "The rule of Schlag (2021) with tanh is far behind: its loss is more than ten times the sum rule's.",
            lambda mean: mean("fwm-tanh", "20") > 10 * mean("sum-dpfp-1", "20"),
        ),
    ),
    notes=NOTES_OF_UPDATES,
)
