"""The choices that the paper leaves open, changed one by one, compared on validation data."""

from typing import Any

from fastweights.core.metric import Display
from fastweights.experiments.experiment import Experiment, Preset, Trial
from fastweights.recipes.gregor2020._trials import changed, label
from fastweights.recipes.gregor2020._trials import trial as paper_trial

MODELS = {"lstm+gated": label("lstm+gated")}
CHOICES: dict[str, tuple[str, dict[str, dict[str, Any]]]] = {
    "none": ("as in Figure 1", {}),
    "online": ("the loss includes the segment", {"training": {"online_loss_weight": 1.0}}),
    "keep-replay": ("snippets change synapses", {"training": {"keep_replay": True}}),
    "printed": ("bounds as printed", {"training": {"bounds": "printed"}}),
    "merged": ("runs merged", {"task_options": {"merged": True}}),
    "width-16": ("operators of 16 hidden units", {"model_options": {"width": 16}}),
    "embedding-8": ("embeddings of 8", {"model_options": {"embedding": 8}}),
    "decay": ("a rate that falls to 0 over the second half", {"training": {"decay": 10_000}}),
    "operator": ("the operator puts out u", {"model_options": {"effect": "operator"}}),
    "same-component": ("one component transmits and gates", {"model_options": {"gates": 0}}),
    "swapped-components": ("component 1 transmits, 0 gates", {"model_options": {"transmits": 1, "gates": 0}}),
    "depth-2": ("two hidden layers", {"model_options": {"num_layers": 2}}),
}
"""The differences from Figure 1 at delay 80, by name: a label, and the changed settings by part of the trial."""

LENGTH: dict[str, dict[str, Any]] = {"smoke": {}, "cpu": {"evaluate_every": 2_000}}


def trial(model: str, column: str, preset: str) -> Trial:
    """A network of Figure 1 with one choice changed."""
    return changed(paper_trial(model, "80", preset), CHOICES[column][1], LENGTH[preset])


EXPERIMENT = Experiment(
    title="Choices that Gregor 2020 leaves open, at delay 80",
    source="The search behind gregor2020/figure-1",
    display=Display("validation bits per past symbol", data="validation"),
    models=MODELS,
    columns={name: words for name, (words, _) in CHOICES.items()},
    published={},
    presets={
        "smoke": Preset(("none", "keep-replay"), ("lstm+gated",)),
        "cpu": Preset(tuple(CHOICES), tuple(MODELS), seeds=2),
    },
    trial=trial,
    notes=(
        "The paper states that an operator that puts out u fails to learn well, and that it uses different components "
        "to transmit and to gate (Sec. 7).",
        "Bounds as printed give shorter delays, and merged runs change the text. Do not compare these two columns with "
        "others.",
    ),
    sanity="The check of gregor2020/figure-1 covers these networks.",
)
