"""Sequential adaptation: accuracy per image, across a change of the data set."""

from dataclasses import replace

from fastweights.experiments.claim import Claim, above
from fastweights.experiments.experiment import Preset
from fastweights.recipes.irie2022.table_2 import EXPERIMENT as TABLE_2
from fastweights.recipes.irie2022.table_2 import detail

FIRST, LATER = (detail("omniglot", "mini_imagenet", k) for k in (1, 10))
NAMES = (FIRST, LATER, detail("omniglot", "omniglot", 10))

EXPERIMENT = replace(
    TABLE_2,
    title="Accuracy over the number of images, across a change of the data set",
    source="Irie, Schlag, Csordas and Schmidhuber 2022, Sec. 4.2, Figure 4",
    presets={
        "smoke": Preset(("both",), ("srwm",)),
        "cpu": Preset(("both",), ("srwm",)),
        "paper": Preset(("both",), ("srwm",)),
    },
    claims=(
        Claim(
            "The accuracy obviously drops where the task changes.",
            "Sec. 4.2",
            above(("srwm", NAMES[2]), ("srwm", FIRST)),
        ),
        Claim(
            "The SRWM effectively adapts itself and starts learning the second task: it gains 10 points by the tenth "
            "image of a class.",
            "Sec. 4.2",
            above(("srwm", LATER), ("srwm", FIRST), by=10.0),
        ),
    ),
    notes=(
        "The paper's curve falls at step 74 to about chance and rises to about 55 %; the paper prints no numbers.",
        *TABLE_2.notes[1:],
    ),
    details={name: TABLE_2.details[name] for name in NAMES},
    published_details={place: number for place, number in TABLE_2.published_details.items() if place[1] in NAMES},
)
