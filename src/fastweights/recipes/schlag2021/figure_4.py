"""Key-value retrieval, setting 1: learning curves with more keys than most feature maps can store."""

from fastweights.experiments.claim import Claim, above, below, places
from fastweights.experiments.experiment import Experiment, Preset
from fastweights.recipes.schlag2021._retrieval import DISPLAY, NOTES, SOLVED, few_keys
from fastweights.recipes.schlag2021.figure_2 import COLUMNS, MODELS, RANDOM, trial
from fastweights.recipes.schlag2021.figure_2 import EXPERIMENT as FIGURE_2

CHOSEN = ("200", "600")
LEARN = ("softmax", "dpfp-2", "dpfp-3")

EXPERIMENT = Experiment(
    title="Retrieval of S associations with keys of 64: learning curves",
    source="Schlag, Irie and Schmidhuber 2021, Appendix D.1, Figure 4",
    display=DISPLAY,
    models=MODELS,
    columns={column: COLUMNS[column] for column in CHOSEN},
    published={place: number for place, number in FIGURE_2.published.items() if place[1] in CHOSEN},
    presets={
        "smoke": Preset(("200",), ("linear",)),
        "cpu": Preset(("200",), tuple(MODELS)),
        "paper": Preset(("600",), tuple(MODELS)),
    },
    trial=trial,
    claims=(
        Claim(
            "With 600 keys, softmax attention has the lowest loss and does not fully converge.",
            "Figure 4",
            (
                *above(("softmax", "600"), SOLVED),
                *below(("softmax", "600"), *places("600", *(model for model in MODELS if model != "softmax"))),
            ),
        ),
        Claim(
            "With 200 keys, only softmax attention, DPFP-2 and DPFP-3 solve the task.",
            "",
            (
                *(part for model in LEARN for part in below((model, "200"), SOLVED)),
                *(part for model in MODELS if model not in LEARN for part in above((model, "200"), SOLVED)),
            ),
        ),
    ),
    notes=(*NOTES, "The paper's figure has 600 keys; preset cpu has 200, a third of them."),
    sanity=few_keys("200", RANDOM),
)
