"""Word models: feature maps of the same large size, with the sum and with the delta rule."""

from fastweights.experiments.experiment import Claim, Experiment, Trial, table
from fastweights.recipes import _words as words

MODELS = {
    "performer-sum": "Performer",
    "performer-delta": "Performer, delta rule",
    "dpfp-sum": "DPFP",
    "dpfp-delta": "DPFP, delta rule",
}
COLUMNS = {"small": "small"}
KEYS = 256
"""Entries of a key behind the feature map."""


def trial(model: str, column: str, preset: str) -> Trial:
    """Either map with either rule."""
    map_name, rule = model.split("-")
    features = (
        f"row-favor-{KEYS // 2}" if map_name == "performer" else f"dpfp-{KEYS // (2 * words.head(preset, column))}"
    )
    layer = "delta-net" if rule == "delta" else "linear-attention"
    return words.trial(preset, layer, {"feature_map": features, **words.scaled(preset, column)}, column)


EXPERIMENT = Experiment(
    title="Word models: feature maps with keys of 256",
    source="Schlag, Irie and Schmidhuber 2021, Sec. 6.3, Table 5",
    metric=words.METRIC,
    models=MODELS,
    columns=COLUMNS,
    published=table(
        ("small",),
        {"performer-sum": (38.8,), "performer-delta": (37.0,), "dpfp-sum": (38.8,), "dpfp-delta": (35.0,)},
    ),
    presets=words.presets(MODELS, COLUMNS),
    trial=trial,
    claims=(
        Claim(
            "With either map, the delta rule is better than the sum rule.",
            lambda mean: all(mean(f"{m}-delta", "small") < mean(f"{m}-sum", "small") for m in ("performer", "dpfp")),
        ),
        Claim(
            "With the delta rule, DPFP is better than random features.",
            lambda mean: mean("dpfp-delta", "small") < mean("performer-delta", "small"),
        ),
    ),
    notes=words.NOTES,
)
