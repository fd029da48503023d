"""A text of the user, or a book."""

import hashlib
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import ClassVar

import torch
from torch import Tensor

from fastweights.core.errors import require, require_name
from fastweights.core.files import read_text
from fastweights.core.metric import BITS, Metric
from fastweights.registry import TOKENIZERS
from fastweights.tasks.sources.kneser_ney import KneserNey
from fastweights.tasks.sources.tokenized import Tokenized

OZ = Path(__file__).parent / "data" / "wizard_of_oz.txt"
"""The Wonderful Wizard of Oz by L. Frank Baum, 1900 (public domain)."""

ORDERS = range(1, 6)
HELD_OUT = 0.1
VALIDATION = 0.05


@dataclass(frozen=True)
class Text(Tokenized):
    """Language modelling of a text.

    Input -> target: `c_1, c_2, ..., c_t -> c_(t+1)`, the next token, by default a character.

    The last tenth of the text is for the test, the twentieth before it validates. Kneser-Ney n-grams of order 1 to 5
    are the baselines: they choose nothing, and so are fitted on all before the test part.

    Args:
        text: A UTF-8 text file; The Wonderful Wizard of Oz if null.
        characters: Number of characters of the text, from its start; 0 for all.
        tokenizer: "characters" of the whole file, or trained on the training part: "words", "bpe", "bytes".

    Files: none for the book, which comes with the library (L. Frank Baum, 1900, public domain): 207,000 characters.

    Source: the book as by Gregor 2020.
    """

    text: str | None = None
    characters: int = 0
    tokenizer: str = "characters"

    main_metric: ClassVar[Metric] = BITS

    def __post_init__(self) -> None:
        require(self.characters >= 0, "characters", "at least 0", self.characters)
        require_name("tokenizer", self.tokenizer, TOKENIZERS.names())

    @cached_property
    def whole(self) -> str:
        """The text of the file."""
        path = OZ if self.text is None else Path(self.text)
        return read_text(path, "text")

    @property
    def content(self) -> str:
        """The used part of the text."""
        return self.whole[: self.characters or None]

    @property
    def tokenizer_text(self) -> str:
        return self.whole if self.tokenizer == "characters" else self._parts[0]

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.content.encode()).hexdigest()

    @cached_property
    def training(self) -> Tensor:
        return self.encode(self._parts[0])

    @cached_property
    def validation(self) -> Tensor:
        return self.encode(self._parts[1])

    @cached_property
    def test(self) -> Tensor:
        return self.encode(self._parts[2])

    @property
    def before_test(self) -> Tensor:
        """The text before the test part."""
        return torch.cat([self.training, self.validation])

    def baselines(self) -> dict[str, float]:
        fitted, held_out, size = self.before_test.numpy(), self.test.numpy(), len(self.trained_tokenizer)
        return {f"Kneser-Ney, order {n}": KneserNey(fitted, size, n).bits(held_out) for n in ORDERS}

    @property
    def _parts(self) -> tuple[str, str, str]:
        n = len(self.content)
        first, second = round(n * (1 - HELD_OUT - VALIDATION)), round(n * (1 - HELD_OUT))
        return self.content[:first], self.content[first:second], self.content[second:]
