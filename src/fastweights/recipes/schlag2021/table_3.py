"""Word models: what DeltaNet gains or loses with positions, and with attention normalisation."""

from fastweights.experiments.experiment import Claim, Experiment, Trial, table
from fastweights.recipes import _words as words

MODELS = {
    "positions-attention": "positions, attention normalisation",
    "attention": "attention normalisation",
    "positions": "positions",
    "neither": "neither",
}
COLUMNS = {"medium": "medium"}


def trial(model: str, column: str, preset: str) -> Trial:
    """DeltaNet with and without either."""
    layer = "attention-delta" if "attention" in model else "delta-net"
    return words.trial(preset, layer, words.scaled(preset, column), column, positions="positions" in model)


EXPERIMENT = Experiment(
    title="Word models: DeltaNet with positions, with attention normalisation",
    source="Schlag, Irie and Schmidhuber 2021, Sec. 6.3, Table 3",
    metric=words.METRIC,
    models=MODELS,
    columns=COLUMNS,
    published=table(
        ("medium",), {"positions-attention": (32.1,), "attention": (31.2,), "positions": (31.5,), "neither": (31.1,)}
    ),
    presets=words.presets(MODELS, COLUMNS),
    trial=trial,
    claims=(
        Claim(
            "With positions, attention normalisation hurts.",
            lambda mean: mean("positions", "medium") < mean("positions-attention", "medium"),
        ),
        Claim("Without, it hurts, too.", lambda mean: mean("neither", "medium") < mean("attention", "medium")),
        Claim("Positions are not needed.", lambda mean: mean("neither", "medium") < mean("positions", "medium")),
    ),
    notes=words.NOTES,
)
