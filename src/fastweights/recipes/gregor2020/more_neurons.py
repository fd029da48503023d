"""A question that the paper leaves open: do more neurons help with longer segments, depth or larger embeddings?"""

from typing import Any

from fastweights.core.metric import Display
from fastweights.experiments.claim import Claim, below, places
from fastweights.experiments.experiment import Experiment, Preset, Trial
from fastweights.recipes.gregor2020._trials import changed
from fastweights.recipes.gregor2020._trials import trial as paper_trial

MODELS = {str(n): f"{n} hidden neurons" for n in (2, 32)}
ALLOWING: dict[str, tuple[str, dict[str, dict[str, Any]]]] = {
    "none": ("as in Figure 1", {}),
    "segment-40": ("with segments of 40", {"training": {"segment": 40, "steps": 10_000}}),
    "depth-2": ("with two layers", {"model_options": {"num_layers": 2}}),
    "embedding-16": ("with embeddings of 16", {"model_options": {"embedding": 16}}),
}
"""Changes that may make more neurons useful, by name: a label, and the changed settings by part of the trial."""

DELAY = "20"
LENGTH: dict[str, dict[str, Any]] = {"smoke": {}, "cpu": {"evaluate_every": 2_000}}
SMALL: dict[str, dict[str, Any]] = {"smoke": {"neurons": 1}}


def trial(model: str, column: str, preset: str) -> Trial:
    """The trial of a network with LSTM bodies and GATED synapses."""
    base = paper_trial("lstm+gated", DELAY, preset)
    model_options = {**base.model_options, "neurons": int(model), **SMALL.get(preset, {})}
    return changed(base._replace(model_options=model_options), ALLOWING[column][1], LENGTH[preset])


def gains(column: str) -> Claim:
    """The claim that 32 neurons are better than 2 by more than a tenth of a bit."""
    return Claim(
        f"32 neurons are better than 2 by a tenth of a bit, {ALLOWING[column][0]}.",
        "",
        below(*places(column, "32", "2"), by=0.1),
    )


EXPERIMENT = Experiment(
    title="Do more neurons remember more?",
    source="A question of ours, after Gregor 2020, who saw no gain",
    display=Display("bits per past symbol, in one pass over the text"),
    models=MODELS,
    columns={name: words for name, (words, _) in ALLOWING.items()},
    published={},
    presets={
        "smoke": Preset(("none", "depth-2"), ("2",)),
        "cpu": Preset(tuple(ALLOWING), tuple(MODELS), seeds=3),
    },
    trial=trial,
    claims=tuple(map(gains, ALLOWING)),
    notes=(
        "The delay is 20. At 80, seeds of one network differ by up to a bit after equally many training steps.",
        "The number of neurons is that of each hidden layer. Compare only within a column: longer segments have longer "
        "snippets and half as many training steps.",
    ),
    sanity="The check of gregor2020/figure-1 covers these networks.",
)
