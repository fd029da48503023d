"""Word models: two feature maps of the same size, each with the sum rule and with the delta rule."""

from fastweights.experiments.claim import Above, Claim, Gap, below, places
from fastweights.experiments.experiment import Experiment, Trial, table
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
    name, rule = model.split("-")
    features = f"row-favor-{KEYS // 2}" if name == "performer" else f"dpfp-{KEYS // (2 * words.head(preset, column))}"
    layer = "delta-net" if rule == "delta" else "linear-attention"
    return words.trial(preset, layer, {"feature_map": features, **words.scaled(preset, column)}, column)


EXPERIMENT = Experiment(
    title="Word models: feature maps with keys of 256",
    source="Schlag, Irie and Schmidhuber 2021, Appendix D.3, Table 5",
    display=words.DISPLAY,
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
            "Our update rule improves both variants of linear attention over the sum update-rule baselines even in "
            "this condition.",
            "Appendix D.3",
            (
                *below(*places("small", "performer-delta", "performer-sum")),
                *below(*places("small", "dpfp-delta", "dpfp-sum")),
            ),
        ),
        Claim(
            "The improvement is larger for the DPFP model than for the Performer.",
            "Appendix D.3",
            (
                Above(
                    Gap(("dpfp-sum", "small"), ("dpfp-delta", "small")),
                    Gap(("performer-sum", "small"), ("performer-delta", "small")),
                ),
            ),
        ),
    ),
    notes=(
        *words.NOTES,
        "The maps have 256 features per head here. The paper's have 32 per head (m = 16, nu = 1), which are 256 for "
        "its eight heads together: these runs do not test the paper's setting.",
    ),
)
