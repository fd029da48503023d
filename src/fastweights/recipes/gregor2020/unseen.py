"""Rules that were learned on one book, on texts that they never saw."""

import math
from typing import Any

from fastweights.core.measurements import Detail
from fastweights.core.metric import Display
from fastweights.experiments.claim import Above, Claim, below
from fastweights.experiments.experiment import Experiment, Preset, Trial
from fastweights.recipes.gregor2020._lives import LSTMS, label
from fastweights.recipes.gregor2020._lives import trial as life

RULES = ("lstm+gated", "gated+gated", "lstm+gated-14")
TEXTS = {"shakespeare": "Tiny Shakespeare", "babi": "bAbI's stories", "wikipedia": "WikiText-2"}
"""What is read in the end, by the name of the text."""

NOISE = "noise"

ELSEWHERE: dict[str, dict[str, Any]] = {"smoke": {"length": 200}}


def trial(model: str, column: str, preset: str) -> Trial:
    """A network of Figure 1, which then reads the other texts."""
    base = life(model, column, preset)
    text = {**base.task_options, "elsewhere": (*TEXTS, NOISE), **ELSEWHERE.get(preset, {})}
    return base._replace(task_options=text)


def loses_little(model: str) -> Claim:
    """What a network that has learned to remember, and not the book, would show."""
    return Claim(
        f"At delay 80, {label(model)} loses less than half a bit on any of the texts.",
        "",
        tuple(Above((model, "80"), (model, Detail("bits", text)), by=-0.5) for text in TEXTS),
    )


def remembers_noise(model: str) -> Claim:
    """What no knowledge of a language can do."""
    return Claim(
        f"At delay 80, {label(model)} is better than nothing on letters at random.",
        "",
        below((model, Detail("bits", NOISE)), math.log2(27)),
    )


EXPERIMENT = Experiment(
    title="Does what was learned on one book remember others?",
    source="A question of ours, after Gregor 2020",
    display=Display("bits a symbol of the past, in the last tenth of the book"),
    models={name: label(name) for name in (*RULES, *LSTMS)},
    columns={"80": "delay 80"},
    published={},
    presets={
        "smoke": Preset(("80",), ("lstm+gated", "lstm-16")),
        "cpu": Preset(("80",), (*RULES, *LSTMS), seeds=3),
    },
    trial=trial,
    claims=(*map(loses_little, ("lstm+gated", "gated+gated", *LSTMS)), *map(remembers_noise, (*RULES, *LSTMS))),
    details={
        Detail("bits", text): f"{words}, read once" for text, words in {**TEXTS, NOISE: "letters at random"}.items()
    },
    notes=(
        "Weights are those that remember best in a part of the book that is not trained on. Each text is read once, "
        "20,000 symbols from a fresh start, and no rule changes there.",
        "bAbI's stories, made of few words, are easier to predict than any book: compare models there, not texts.",
        "Letters at random are all equally likely: who knows nothing of the past is at log2(27) = 4.75 bits at best.",
    ),
    sanity="The check of gregor2020/figure-1 covers these networks.",
)
