"""A text of one's own, or a book."""

import hashlib
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import ClassVar

import torch
from torch import Tensor

from fastweights.catalogue import TOKENIZERS
from fastweights.errors import require, require_name
from fastweights.files import read_file
from fastweights.metric import BITS, Metric
from fastweights.tasks._kneser_ney import KneserNey
from fastweights.tasks._tokenized import Tokenized, decoded

OZ = Path(__file__).parent / "data" / "wizard_of_oz.txt"
"""The Wonderful Wizard of Oz by L. Frank Baum, 1900 (public domain)."""

ORDERS = range(1, 6)
HELD_OUT = 0.1
VALIDATION = 0.05


@dataclass(frozen=True)
class Text(Tokenized):
    """c_1, c_2, ..., c_t -> c_{t + 1}, the next token of a text, a character if nothing else is said.

    The last tenth of the text is for the test, the twentieth before it validates. Kneser-Ney n-grams of order 1 to 5
    are the baselines: they choose nothing, and so are fitted on all before the test part.

    Args:
        text: A UTF-8 text file; The Wonderful Wizard of Oz if null.
        characters: Of the text, from its beginning; 0 for all.
        tokenizer: "characters", all of the file, or what is learnt from the part for training: "words", "bpe", "bytes".
        validation_text: UTF-8 text file for validation; null for a part of the text.
        test_text: UTF-8 text file for the test; null for a part of the text.

    Files: none for the book, which comes with the library (L. Frank Baum, 1900, public domain): 207,000 characters.

    Source: the book as by Gregor 2020.
    """

    text: str | None = None
    characters: int = 0
    tokenizer: str = "characters"
    validation_text: str | None = None
    test_text: str | None = None

    main_metric: ClassVar[Metric] = BITS

    def __post_init__(self) -> None:
        require(self.characters >= 0, "characters", "at least 0", self.characters)
        require_name("tokenizer", self.tokenizer, TOKENIZERS.names())

    @cached_property
    def whole(self) -> str:
        """What the file says."""
        path = OZ if self.text is None else Path(self.text)
        return decoded(read_file(path, "text"), "text", path)

    @property
    def content(self) -> str:
        """As much of it as is used."""
        return self.whole[: self.characters or None]

    @cached_property
    def others(self) -> dict[str, str]:
        """The texts for validation and for the test that have a file of their own."""
        files = {"validation_text": self.validation_text, "test_text": self.test_text}
        return {name: decoded(read_file(Path(file), name), name, file) for name, file in files.items() if file}

    @property
    def learnt_from(self) -> str:
        return "".join((self.whole, *self.others.values())) if self.tokenizer == "characters" else self._parts[0]

    @property
    def sha256(self) -> str:
        return hashlib.sha256("\0".join((self.content, *self.others.values())).encode()).hexdigest()

    @property
    def described(self) -> str:
        if self.text is None:
            return ""
        sizes = f"{len(self.training):,}, {len(self.validation):,} and {len(self.test):,} {self.unit}s"
        return f"{sizes} for training, validation and the test"

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
        """What the test part follows."""
        return torch.cat([self.training, self.validation])

    def baselines(self) -> dict[str, float]:
        fitted, held_out, size = self.before_test.numpy(), self.test.numpy(), len(self.learnt)
        return {f"Kneser-Ney, order {n}": KneserNey(fitted, size, n).bits(held_out) for n in ORDERS}

    @property
    def _parts(self) -> tuple[str, str, str]:
        n = len(self.content)
        held_out = 0 if self.test_text else HELD_OUT
        second = round(n * (1 - held_out))
        first = second if self.validation_text else round(n * (1 - held_out - VALIDATION))
        validation = self.others.get("validation_text", self.content[first:second])
        return self.content[:first], validation, self.others.get("test_text", self.content[second:])
