"""Key-value retrieval, setting 2: replacement of stored values by update rule."""

from fastweights.experiments.claim import Claim, above, below, places
from fastweights.experiments.experiment import Experiment, Preset
from fastweights.recipes.schlag2021._retrieval import DISPLAY, SOLVED, few_keys
from fastweights.recipes.schlag2021.figure_5 import COLUMNS, MODELS, NOTES_OF_UPDATES, OTHER_RULES, REST, trial
from fastweights.recipes.schlag2021.figure_5 import EXPERIMENT as FIGURE_5

EXPERIMENT = Experiment(
    title="Retrieval of the last of several values: learning curves",
    source="Schlag, Irie and Schmidhuber 2021, Sec. 6.1.2, Figure 3",
    display=DISPLAY,
    models=MODELS,
    columns={"20": COLUMNS["20"]},
    published={place: number for place, number in FIGURE_5.published.items() if place[1] == "20"},
    presets={
        name: Preset(("20",), tuple(MODELS), seeds=1 if name == "smoke" else 5) for name in ("smoke", "cpu", "paper")
    },
    trial=trial,
    claims=(
        Claim(
            "Our new update rule outperforms all other variants.",
            "Sec. 6.1.2",
            below(("delta-dpfp-1", "20"), *places("20", *OTHER_RULES)),
        ),
        Claim("The baseline sum update rule fails.", "Sec. 6.1.2", above(("sum-dpfp-1", "20"), SOLVED)),
        Claim("The delta rule learns setting 2 with 20 keys.", "", below(("delta-dpfp-1", "20"), SOLVED)),
    ),
    notes=NOTES_OF_UPDATES,
    sanity=few_keys("20", REST),
)
