"""A text in three files, for training, validation and the test."""

import hashlib
from abc import abstractmethod
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import ClassVar

from torch import Tensor

from fastweights.core.errors import require, require_name
from fastweights.core.files import decoded
from fastweights.core.metric import PERPLEXITY, Metric
from fastweights.registry import TOKENIZERS
from fastweights.tasks.sources.kneser_ney import KneserNey
from fastweights.tasks.sources.tokenized import Tokenized
from fastweights.tokenizers._tokenizer import lines

PARTS = ("train", "validation", "test")
ORDER = 5


@dataclass(frozen=True)
class Corpus(Tokenized):
    """Tokens of a tokenizer that is trained on the training text.

    Args:
        tokenizer: "words", "characters", "bytes" or "bpe".
        lines: Number of lines of the training text, from its start; 0 for all.
        held_out: Number of lines of each of the two other texts, from their start; 0 for all.
    """

    tokenizer: str = "words"
    lines: int = 0
    held_out: int = 0

    main_metric: ClassVar[Metric] = PERPLEXITY

    def __post_init__(self) -> None:
        require_name("tokenizer", self.tokenizer, TOKENIZERS.names())
        for name in ("lines", "held_out"):
            require(getattr(self, name) >= 0, name, "at least 0", getattr(self, name))

    @abstractmethod
    def read(self, part: str) -> bytes:
        """The file for "train", "validation" or "test", in UTF-8."""

    @property
    def tokenizer_text(self) -> str:
        return self._text("train")

    @property
    def sha256(self) -> dict[str, str]:
        return {part: hashlib.sha256(self._text(part).encode()).hexdigest() for part in PARTS}

    @cached_property
    def training(self) -> Tensor:
        return self.trained_tokenizer.encode(self._text("train"))

    @cached_property
    def validation(self) -> Tensor:
        return self.trained_tokenizer.encode(self._text("validation"))

    @cached_property
    def test(self) -> Tensor:
        return self.trained_tokenizer.encode(self._text("test"))

    @property
    def before_test(self) -> Tensor:
        """The text before a sample."""
        return self.validation

    @cached_property
    def _n_grams(self) -> float:
        model = KneserNey(self.training.numpy(), len(self.trained_tokenizer), ORDER)
        return float(2 ** model.bits(self.test.numpy()))

    def baselines(self) -> dict[str, float]:
        return {f"Kneser-Ney, order {ORDER}": self._n_grams}

    def _text(self, part: str) -> str:
        most = self.lines if part == "train" else self.held_out
        text = decoded(self.read(part), f"{part} text", "one")
        return "".join(f"{line}\n" for line in islice(lines(text), most)) if most else text
