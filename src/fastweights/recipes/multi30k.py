"""A translator of captions from English to German."""

from dataclasses import dataclass
from typing import Any, ClassVar

from fastweights.core.metric import SIGNATURE, Display
from fastweights.experiments.claim import Claim, above, places
from fastweights.experiments.experiment import Experiment, Preset, Trial
from fastweights.recipes._translator import SMALLEST, TranslatorRecipe


@dataclass(frozen=True, kw_only=True)
class Multi30kRecipe(TranslatorRecipe):
    """A translator of image captions, English to German. For your data: fastweights train translation.

    Source: the data are task 1 of Elliott et al. 2016. The models are smaller versions of those of Schlag et al. 2021,
    Sec. 6.2.

    Args:
        sentences: Number of sentence pairs for training, from the start of the files; 0 for all.
        held_out: Number of sentence pairs for validation, and for the test; 0 for all.
    """

    sentences: int = 0
    held_out: int = 0

    DATA: ClassVar[tuple[str, ...]] = ("pieces", "sentences", "held_out")
    PRESETS: ClassVar[dict[str, dict[str, Any]]] = {
        "cpu": {"precision": "bf16-mixed"},
        "smoke": {**SMALLEST, "sentences": 200, "held_out": 20},
    }
    USE: ClassVar[str] = 'translate RUN "A dog runs."'

    def trial(self) -> Trial:
        """The trial of these flags."""
        task = {name: getattr(self, name) for name in ("pieces", "sentences", "held_out")}
        return Trial("multi30k", task, "translator", self.model_options(), self.training())


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
    return Multi30kRecipe(**{**Multi30kRecipe.PRESETS[preset], "layer": model}).trial()


EXPERIMENT = Experiment(
    title="Captions from English to German",
    source="Our own check, on task 1 of Multi30k (Elliott, Frank, Sima'an and Specia 2016)",
    display=Display("test BLEU"),
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
    sanity="This comparison is ours, without numbers of a paper.",
)
