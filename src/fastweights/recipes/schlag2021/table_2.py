"""Word-level language models: the delta rule and the sum rule, with ELU + 1 and with random features."""

from typing import Any

from fastweights.experiments.claim import Above, Claim, Gap, below, places
from fastweights.experiments.experiment import Experiment, Trial, table
from fastweights.recipes import _words as words

MODELS = {
    "transformer": "Transformer",
    "linear": "Linear Transformer",
    "delta": "DeltaNet",
    "performer-sum": "Performer",
    "performer-delta": "Performer, delta rule",
}
COLUMNS = {"small": "small", "medium": "medium"}
DIRECTIONS = {"small": 8, "medium": 16}
"""Number of random directions of FAVOR+: half of d."""


def trial(model: str, column: str, preset: str) -> Trial:
    """The papers' word model with another layer."""
    if model == "transformer":
        return words.trial(preset, "softmax-attention", words.attention(preset, column), column)
    layers: dict[str, tuple[str, dict[str, Any]]] = {
        "linear": ("linear-attention", {}),
        "delta": ("delta-net", {}),
        "performer-sum": ("performer", {"feature_map": f"row-favor-{DIRECTIONS[column]}"}),
        "performer-delta": ("delta-net", {"feature_map": f"row-favor-{DIRECTIONS[column]}"}),
    }
    layer, options = layers[model]
    return words.trial(preset, layer, {**options, **words.scaled(preset, column)}, column)


EXPERIMENT = Experiment(
    title="Word-level language models: update rules and feature maps",
    source="Schlag, Irie and Schmidhuber 2021, Sec. 6.3, Table 2",
    display=words.DISPLAY,
    models=MODELS,
    columns=COLUMNS,
    published=table(
        ("small", "medium"),
        {
            "transformer": (34.1, 29.6),
            "linear": (38.3, 33.0),
            "delta": (35.5, 31.5),
            "performer-sum": (39.6, 33.8),
            "performer-delta": (37.2, 31.8),
        },
    ),
    presets=words.presets(MODELS, COLUMNS),
    trial=trial,
    claims=(
        *(
            Claim(
                f"In the {size} configuration, our update rule provides convincing improvements over the models with "
                "the sum update rule.",
                "Sec. 6.3",
                (*below(*places(size, "delta", "linear")), *below(*places(size, "performer-delta", "performer-sum"))),
            )
            for size in COLUMNS
        ),
        Claim(
            "Our update rule improves the deterministic Linear Transformers more than the Performers.",
            "Appendix D.3",
            (
                Above(
                    Gap(("linear", "small"), ("delta", "small")),
                    Gap(("performer-sum", "small"), ("performer-delta", "small")),
                ),
            ),
        ),
        Claim(
            "The Transformer is better than all other models.",
            "Table 2",
            below(("transformer", "small"), *places("small", *(model for model in MODELS if model != "transformer"))),
        ),
    ),
    notes=words.NOTES,
    sanity=words.sanity("small"),
)
