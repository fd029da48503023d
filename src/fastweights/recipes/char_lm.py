"""A character language model on The Wonderful Wizard of Oz."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

from fastweights.core.metric import Display
from fastweights.experiments.claim import Claim, below, places
from fastweights.experiments.experiment import Experiment, Preset, Trial
from fastweights.recipes._language import LanguageRecipe, with_unit_keys
from fastweights.training.settings._training import require_numbers


@dataclass(frozen=True, kw_only=True)
class CharLMRecipe(LanguageRecipe):
    """A character-level language model of The Wonderful Wizard of Oz, compared with Kneser-Ney n-grams.

    Source: the text is the book by L. Frank Baum, 1900, as in Gregor 2020.

    Args:
        text: UTF-8 text file to use instead of the book.
        characters: Number of characters from the start of the text; 0 for all.
        qk_norm: Normalisation of keys and queries: "l2", "sum" or "none"; null for "l2" in layers with keys.
    """

    text: Path | None = None
    characters: int = 0
    tokenizer: Literal["characters", "words", "bytes", "bpe"] = "characters"
    layer: str = "lstm,gated-delta"
    conv_size: int = 4
    d_model: int = 192
    num_layers: int = 2
    num_heads: int = 6
    d_ff: int = 192
    dropout: float = 0.05

    steps: int = 1120
    batch_size: int = 4
    window: int = 256
    optimizer: Literal["adamw", "muon"] = "muon"
    learning_rate: float = 4e-3
    warmup_steps: int = 50
    weight_decay: float = 1.0
    max_grad_norm: float = 1.0
    evaluate_every: int = 250
    sample: int = 400

    DATA: ClassVar[tuple[str, ...]] = ("text", "characters", "tokenizer")
    PRESETS: ClassVar[dict[str, dict[str, Any]]] = {
        "cpu": {},
        "smoke": {
            **{"d_model": 32, "num_heads": 2, "d_ff": 64},
            **{"steps": 20, "evaluate_every": 10, "window": 64},
            **{"characters": 20000, "sample": 40},
        },
        "long": {"steps": 12000, "patience": 8, "dropout": 0.2, "optimizer": "adamw", "weight_decay": 0.01},
    }

    USE: ClassVar[str] = 'generate RUN --prompt "Dorothy"'

    def __post_init__(self) -> None:
        super().__post_init__()
        require_numbers(self, ("characters",), 0)

    def trial(self) -> Trial:
        """The task, the model and the settings of training."""
        text = {"text": self.text and str(self.text), "characters": self.characters, "tokenizer": self.tokenizer}
        return Trial("text", text, "language-model", self.model_options(), self.training())

    def model_options(self) -> dict[str, Any]:
        """Options of the model."""
        return with_unit_keys(self.layer, super().model_options())


MODELS = {
    "delta-net": "DeltaNet",
    "gated-delta": "Gated DeltaNet",
    "delta-rnn": "Delta RNN",
    "softmax-attention": "Softmax attention",
    "lstm": "LSTM",
}


def trial(model: str, column: str, preset: str) -> Trial:
    """The settings of `fastweights train char-lm` with another layer."""
    return CharLMRecipe(**{**CharLMRecipe.PRESETS[preset], "layer": model}).trial()


EXPERIMENT = Experiment(
    title="A character model on The Wonderful Wizard of Oz",
    source="Our own check, on L. Frank Baum's book of 1900",
    display=Display("held-out bits per character"),
    models=MODELS,
    columns={"book": "the book"},
    published={},
    presets={name: Preset(("book",), tuple(MODELS)) for name in CharLMRecipe.PRESETS},
    trial=trial,
    claims=(
        Claim(
            "DeltaNet is better than softmax attention.", "", below(*places("book", "delta-net", "softmax-attention"))
        ),
        Claim("The LSTM is better than DeltaNet.", "", below(*places("book", "lstm", "delta-net"))),
    ),
    notes=(
        "All layers have the settings of `fastweights train char-lm`, which were chosen for blocks of an LSTM and of "
        "gated DeltaNet.",
        "Kneser-Ney n-grams choose nothing, and so are fitted on all before the held-out tenth.",
    ),
    sanity="This comparison is ours, without numbers of a paper.",
)
