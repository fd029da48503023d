"""Rules that were learned on one book, tested on other texts."""

import math
from typing import Any

from fastweights.core.measurements import Detail
from fastweights.core.metric import Display
from fastweights.experiments.claim import Above, Claim, below
from fastweights.experiments.experiment import Experiment, Preset, Trial
from fastweights.recipes.gregor2020._trials import LSTMS, label
from fastweights.recipes.gregor2020._trials import trial as paper_trial

RULES = ("lstm+gated", "gated+gated", "lstm+gated-14")
TEXTS = {"shakespeare": "Tiny Shakespeare", "babi": "bAbI's stories", "wikipedia": "WikiText-2"}
"""Labels of the other texts."""

NOISE = "noise"

SHORTER_TEXTS: dict[str, dict[str, Any]] = {"smoke": {"length": 200}}


def trial(model: str, column: str, preset: str) -> Trial:
    """A network of Figure 1, which is tested on the other texts as well."""
    base = paper_trial(model, column, preset)
    text = {**base.task_options, "test_texts": (*TEXTS, NOISE), **SHORTER_TEXTS.get(preset, {})}
    return base._replace(task_options=text)


def loses_little(model: str) -> Claim:
    """The claim that a network has learned to remember, and not the book."""
    return Claim(
        f"At delay 80, {label(model)} loses less than half a bit on any of the texts.",
        "",
        tuple(Above((model, "80"), (model, Detail("bits", text)), by=-0.5) for text in TEXTS),
    )


def remembers_noise(model: str) -> Claim:
    """The claim that a network remembers a text without any structure."""
    return Claim(
        f"At delay 80, {label(model)} is better than chance on random letters.",
        "",
        below((model, Detail("bits", NOISE)), math.log2(27)),
    )


EXPERIMENT = Experiment(
    title="Do update rules learned on one book remember others?",
    source="A question of ours, after Gregor 2020",
    display=Display("bits per past symbol, in the last tenth of the book"),
    models={name: label(name) for name in (*RULES, *LSTMS)},
    columns={"80": "delay 80"},
    published={},
    presets={
        "smoke": Preset(("80",), ("lstm+gated", "lstm-16")),
        "cpu": Preset(("80",), (*RULES, *LSTMS), seeds=3),
    },
    trial=trial,
    claims=(*map(loses_little, ("lstm+gated", "gated+gated", *LSTMS)), *map(remembers_noise, (*RULES, *LSTMS))),
    details={Detail("bits", text): f"{words}, one pass" for text, words in {**TEXTS, NOISE: "random letters"}.items()},
    notes=(
        "The weights are the best on a part of the book that is not in the training data. Each text is 20,000 symbols, "
        "in one pass from an initial state and with fixed rules.",
        "bAbI's stories, made of few words, are easier to predict than any book: compare models on them, not texts.",
        "Random letters are equally likely. Chance level: log2(27) = 4.75 bits.",
    ),
    sanity="The check of gregor2020/figure-1 covers these networks.",
)
