"""Word-level language models: DeltaNet with and without positions, and with and without attention normalisation."""

from fastweights.experiments.claim import Claim, below, places
from fastweights.experiments.experiment import Experiment, Trial, table
from fastweights.recipes import _words as words

MODELS = {
    "positions-attention": "positions, attention normalisation",
    "attention": "attention normalisation",
    "positions": "positions",
    "neither": "neither",
}
COLUMNS = {"medium": "medium"}


def trial(model: str, column: str, preset: str) -> Trial:
    """DeltaNet with positions, with attention normalisation, with both, or with neither."""
    layer = "attention-delta" if "attention" in model else "delta-net"
    return words.trial(preset, layer, words.scaled(preset, column), column, positions="positions" in model)


EXPERIMENT = Experiment(
    title="Word-level language models: DeltaNet with positions, with attention normalisation",
    source="Schlag, Irie and Schmidhuber 2021, Sec. 6.3, Table 3",
    display=words.DISPLAY,
    models=MODELS,
    columns=COLUMNS,
    published=table(
        ("medium",), {"positions-attention": (32.1,), "attention": (31.2,), "positions": (31.5,), "neither": (31.1,)}
    ),
    presets=words.presets(MODELS, COLUMNS),
    trial=trial,
    claims=(
        Claim(
            "Better perplexities are obtained when no additional attention normalisation is applied.",
            "Sec. 6.3",
            (
                *below(*places("medium", "positions", "positions-attention")),
                *below(*places("medium", "neither", "attention")),
            ),
        ),
        Claim(
            "The absolute positional encoding is not needed: without it, perplexity is not higher by more than a "
            "hundredth.",
            "Sec. 6.3",
            (
                *below(*places("medium", "neither", "positions"), times=1 / 1.01),
                *below(*places("medium", "attention", "positions-attention"), times=1 / 1.01),
            ),
        ),
    ),
    notes=words.NOTES,
    sanity=words.sanity("medium"),
)
