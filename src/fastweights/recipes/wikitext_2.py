"""A word model on WikiText-2."""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from fastweights.core.metric import Display
from fastweights.experiments.claim import Claim, below, places
from fastweights.experiments.experiment import Experiment, Preset, Trial
from fastweights.recipes._language import LanguageRecipe


@dataclass(frozen=True, kw_only=True)
class Wikitext2Recipe(LanguageRecipe):
    """A word-level language model of WikiText-2, compared with Kneser-Ney 5-grams.

    Source: the text is that of Merity et al. 2017. The models are smaller versions of those of Schlag et al. 2021,
    Sec. 6.3.

    Args:
        lines: Number of lines of training text, from its start; 0 for all.
        held_out: Number of lines of validation text, and of test text; 0 for all.
        positions: Position encoding that is added to the embeddings, from "fastweights list positions"; null for none.
        cutoffs: Boundaries of the clusters of the adaptive softmax, in words by frequency; empty for an ordinary
            softmax.
    """

    tokenizer: Literal["words", "characters", "bytes", "bpe"] = "words"
    lines: int = 0
    held_out: int = 0
    d_model: int = 128
    num_layers: int = 4
    num_heads: int = 8
    d_ff: int = 512
    dropout: float = 0.2
    positions: str | None = None
    cutoffs: tuple[int, ...] = (2000, 10000)

    steps: int = 4000
    batch_size: int = 16
    window: int = 128
    learning_rate: float = 2e-3
    warmup_steps: int = 200
    weight_decay: float = 0.01
    max_grad_norm: float = 0.25
    evaluate_every: int = 500
    sample: int = 60

    DATA: ClassVar[tuple[str, ...]] = ("tokenizer", "lines", "held_out")
    PRESETS: ClassVar[dict[str, dict[str, Any]]] = {
        "cpu": {},
        "smoke": {
            **{
                "d_model": 32,
                "num_layers": 1,
                "num_heads": 2,
                "d_ff": 64,
                "steps": 20,
                "evaluate_every": 10,
                "window": 32,
            },
            **{"lines": 300, "held_out": 20, "cutoffs": (300,), "batch_size": 4, "sample": 10},
        },
    }

    USE: ClassVar[str] = 'generate RUN --prompt "The"'

    def trial(self) -> Trial:
        """The task, the model and the settings of training."""
        task = {name: getattr(self, name) for name in ("tokenizer", "lines", "held_out")}
        return Trial("wikitext-2", task, "language-model", self.model_options(), self.training())

    def model_options(self) -> dict[str, Any]:
        """Of the model."""
        output = {
            "tie_word_embeddings": True,
            "scale_embeddings": True,
            "output_dropout": self.dropout,
            "cutoffs": self.cutoffs,
        }
        return {**super().model_options(), **output, "positions": self.positions}


MODELS = {
    "delta-net": "DeltaNet",
    "linear-attention": "Linear Transformer",
    "softmax-attention": "Transformer",
    "lstm": "LSTM",
}


def trial(model: str, column: str, preset: str) -> Trial:
    """The settings of `fastweights train wikitext-2` with another layer."""
    return Wikitext2Recipe(**{**Wikitext2Recipe.PRESETS[preset], "layer": model}).trial()


EXPERIMENT = Experiment(
    title="A word-level language model of Wikipedia",
    source="Our own check, on WikiText-2 (Merity, Xiong, Bradbury and Socher 2017)",
    display=Display("test perplexity"),
    models=MODELS,
    columns={"words": "2 million words"},
    published={},
    presets={name: Preset(("words",), tuple(MODELS)) for name in Wikitext2Recipe.PRESETS},
    trial=trial,
    claims=(
        Claim(
            "DeltaNet is better than the Linear Transformer.",
            "",
            below(*places("words", "delta-net", "linear-attention")),
        ),
    ),
    sanity="This comparison is ours, without numbers of a paper.",
)
