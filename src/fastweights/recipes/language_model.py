"""A language model of the user's own text."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

from fastweights.core.errors import require
from fastweights.core.metric import Display
from fastweights.experiments.experiment import Trial, own_data
from fastweights.recipes._language import LanguageRecipe, with_unit_keys


@dataclass(frozen=True, kw_only=True)
class LanguageModelRecipe(LanguageRecipe):
    """A language model of your text, compared with Kneser-Ney n-grams.

    Data: yours: --text FILE.

    Args:
        text: UTF-8 text file.
        validation_text: UTF-8 text file for validation; null for the last 5 % before the test part of the text.
        test_text: UTF-8 text file for the test; null for the last 10 % of the text.
        qk_norm: Normalisation of keys and queries: "l2", "sum" or "none"; null for "l2" in layers with keys.
    """

    text: Path | None = None
    validation_text: Path | None = None
    test_text: Path | None = None
    tokenizer: Literal["characters", "words", "bytes", "bpe"] = "characters"
    layer: str = "lstm,gated-delta"
    conv_size: int = 4
    d_model: int = 192
    num_layers: int = 2
    num_heads: int = 6
    d_ff: int = 192
    dropout: float = 0.2

    steps: int = 12_000
    batch_size: int = 4
    window: int = 256
    learning_rate: float = 4e-3
    warmup_steps: int = 50
    weight_decay: float = 0.01
    max_grad_norm: float = 1.0
    evaluate_every: int = 250
    patience: int = 8
    sample: int = 400

    DATA: ClassVar[tuple[str, ...]] = ("text", "validation_text", "test_text", "tokenizer")
    PRESETS: ClassVar[dict[str, dict[str, Any]]] = {
        "cpu": {},
        "smoke": {
            "d_model": 32,
            "num_heads": 2,
            "d_ff": 64,
            "steps": 20,
            "evaluate_every": 10,
            "window": 64,
            "sample": 40,
        },
    }
    USE: ClassVar[str] = 'generate RUN --prompt "The"'

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.text is not None, "text", "a text file", "none", "Add --text FILE.")

    def trial(self) -> Trial:
        """The trial of these flags."""
        files = {name: str(path) for name in ("text", "validation_text", "test_text") if (path := getattr(self, name))}
        task = {**files, "tokenizer": self.tokenizer}
        return Trial("text-files", task, "language-model", self.model_options(), self.training())

    def model_options(self) -> dict[str, Any]:
        """Options of the model."""
        return with_unit_keys(self.layer, super().model_options())


TABLE = own_data("A language model of your text", Display("test bits per token"))
