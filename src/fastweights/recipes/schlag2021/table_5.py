"""Word-level language models: two feature maps of the same size, each with the sum rule and with the delta rule."""

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
FEATURE_MAPS = {"performer": "row-favor-16", "dpfp": "dpfp-1"}
"""Appendix D.3: m = 16 and nu = 1. Both give keys of 32 to a head of 16; the 256 of the paper's caption is the sum over
its eight heads."""


def trial(model: str, column: str, preset: str) -> Trial:
    """One of the two feature maps with one of the two rules."""
    name, rule = model.split("-")
    layer = "delta-net" if rule == "delta" else "linear-attention"
    return words.trial(preset, layer, {"feature_map": FEATURE_MAPS[name], **words.scaled(preset, column)}, column)


EXPERIMENT = Experiment(
    title="Word-level language models: random features and DPFP of the same size",
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
    notes=words.NOTES,
    sanity=words.sanity("small", sizes={"features": 32}),
)
