"""A translator of captions from English to German."""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from fastweights.experiments.claim import Claim, above, places
from fastweights.experiments.experiment import Experiment, Preset, Trial
from fastweights.metric import BLEU, SIGNATURE
from fastweights.recipes._sizes import check_sizes
from fastweights.training.settings.translation import Translation


@dataclass(frozen=True, kw_only=True)
class Multi30k(Translation):
    """English captions to German, by a decoder with any layer beside softmax or linear attention to the source.

    Source: the data are task 1 of Elliott et al. 2016; the models those of Schlag et al. 2021, Sec. 6.2, made small.

    Args:
        layer: Of the decoder: a name from "fastweights list layers", or your own: MODULE:NAME or PATH.py:NAME. Several
            with commas between them take turns over the blocks.
        feature_map: Of that layer, a name from "fastweights list feature-maps"; the layer's own if null.
        encoder: Feature map of linear attention in the encoder; softmax attention if null.
        cross: Feature map of linear attention to the source; softmax attention if null.
        pieces: Size of the vocabulary that both languages share.
        sentences: For training, from the beginning of the files; 0 for all.
        held_out: For validation, and as many for the test; 0 for all.
        d_model: Size of the representation.
        depth: Number of blocks of the encoder, and of the decoder.
        heads: Of every attention.
        d_ff: Width of the feed-forward networks.
        dropout: Probability of dropping a unit.
        norm: LayerNorm before ("pre") or after ("post") every layer.
    """

    layer: str = "linear-attention"
    feature_map: str | None = None
    encoder: str | None = None
    cross: str | None = None
    pieces: int = 4000
    sentences: int = 0
    held_out: int = 0
    d_model: int = 128
    depth: int = 2
    heads: int = 2
    d_ff: int = 512
    dropout: float = 0.2
    norm: Literal["pre", "post"] = "post"

    steps: int = 6000
    batch_size: int = 1024
    learning_rate: float = 2e-3
    warmup: int = 1000
    evaluate_every: int = 500
    patience: int = 4

    PRESETS: ClassVar[dict[str, dict[str, Any]]] = {
        "cpu": {},
        "smoke": {
            **{"d_model": 32, "depth": 1, "heads": 2, "d_ff": 64, "steps": 20, "evaluate_every": 10, "pieces": 300},
            **{"sentences": 200, "held_out": 20, "batch_size": 512, "warmup": 10, "beam": 2},
        },
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        check_sizes(self)

    def trial(self) -> Trial:
        """What is trained."""
        names = ("layer", "encoder", "cross", "d_model", "depth", "heads", "d_ff", "dropout", "norm")
        model = {name: getattr(self, name) for name in names}
        options: dict[str, Any] = {} if self.feature_map is None else {"feature_map": self.feature_map}
        if self.layer == "softmax-attention":
            options["rotates"] = False  # positions are added to what it reads, as in the encoder
        training = Translation.among(self)
        task = {name: getattr(self, name) for name in ("pieces", "sentences", "held_out")}
        return Trial("multi30k", task, "translator", {**model, "options": options}, training)


MODELS = {
    "softmax-attention": "Softmax attention",
    "linear-attention": "Linear attention",
    "delta-net": "DeltaNet",
}
COLUMN = "flickr-2016"
MEASURED = (
    f"BLEU is that of {SIGNATURE}; on validation data of the likeliest tokens, on test data of what a beam finds."
)


def trial(model: str, column: str, preset: str) -> Trial:
    """The settings of `fastweights train multi30k` with another layer in the decoder."""
    return Multi30k(**{**Multi30k.PRESETS[preset], "layer": model}).trial()


EXPERIMENT = Experiment(
    title="Captions from English to German",
    source="A check of our own, on task 1 of Multi30k (Elliott, Frank, Sima'an and Specia 2016)",
    metric=BLEU.told("plain", "test BLEU"),
    models=MODELS,
    columns={COLUMN: "Flickr 2016"},
    published={},
    presets={
        "smoke": Preset((COLUMN,), tuple(MODELS)),
        "cpu": Preset((COLUMN,), tuple(MODELS), seeds=3),
    },
    trial=trial,
    claims=(
        Claim("Softmax attention reaches 25 BLEU.", "", above(("softmax-attention", COLUMN), 25.0)),
        Claim(
            "A decoder with the delta rule is better than one with the sum rule.",
            "",
            above(*places(COLUMN, "delta-net", "linear-attention")),
        ),
    ),
    notes=(MEASURED,),
)
