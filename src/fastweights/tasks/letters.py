"""A text as letters and one symbol for all other characters."""

import hashlib
import re
import string
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

from torch import Tensor

from fastweights.core.errors import require
from fastweights.core.files import decoded, read_text
from fastweights.tasks.data_sets.babi import STORIES
from fastweights.tasks.data_sets.tiny_shakespeare import TEXT
from fastweights.tasks.sources.texts import noise, stories_of
from fastweights.tasks.text import Text
from fastweights.tasks.wikitext_2 import Wikitext2

GAP = " "


def shakespeare() -> str:
    """Plays of Shakespeare: `tiny-shakespeare/input.txt` (Karpathy 2015, public domain)."""
    return decoded(TEXT.read(), "text", TEXT.path)


def babi() -> str:
    """Stories of the test files of bAbI (Weston et al. 2015, CC BY 3.0)."""
    return stories_of(STORIES.fetch())


def wikipedia() -> str:
    """Text of the test part of WikiText-2."""
    return decoded(Wikitext2().read("test"), "test text", "one")


TEXTS = {"shakespeare": shakespeare, "babi": babi, "wikipedia": wikipedia, "noise": noise}
"""Other texts by name."""


@dataclass(frozen=True)
class Letters(Text):
    """Language modelling of a text with an alphabet of 27 symbols.

    Input -> target: `c_1, c_2, ..., c_t -> c_(t+1)`, where c is a letter from a to z, capital or not, or the symbol for
    all other characters.

    The last tenth of the text is for the test, and the twentieth before it for validation. All characters but a to z
    map to one "other" symbol.

    Args:
        text: A UTF-8 text file; The Wonderful Wizard of Oz if null.
        characters: Number of characters of the text, from its start; 0 for all.
        merged: Whether a run of other characters is one symbol, instead of one per character.
        test_texts: Other test texts: "shakespeare", "babi", "wikipedia", "noise" (letters at
            random), or UTF-8 text files.
        length: Number of symbols of each of them.

    Files: none for the book, which comes with the library (L. Frank Baum, 1900, public domain); those of other texts.

    Source: Gregor 2020, Sec. 5, which does not say whether runs are merged.
    """

    tokenizer: ClassVar[str] = "characters"  # type: ignore[misc]
    merged: bool = False
    test_texts: tuple[str, ...] = ()
    length: int = 20_000

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.length >= 1, "length", "at least 1", self.length)
        object.__setattr__(self, "test_texts", tuple(self.test_texts))

    @cached_property
    def whole(self) -> str:
        """The text of the file as letters and gaps."""
        return self._letters(self.written)

    @cached_property
    def unseen(self) -> dict[str, Tensor]:
        """The other texts by name; the name of a file is without its folder."""
        names = [Path(source).name for source in self.test_texts]
        require(len({*names}) == len(names), "test_texts", "texts with different names", ", ".join(names))
        read = [TEXTS[source]() if source in TEXTS else _read(source) for source in self.test_texts]
        texts = dict(zip(names, read, strict=True))
        return {name: self.encode(self._letters(text)[: self.length]) for name, text in texts.items()}

    def facts(self) -> dict[str, Any]:
        digests = {name: hashlib.sha256(text.numpy().tobytes()).hexdigest() for name, text in self.unseen.items()}
        return {**super().facts(), **({"test_texts": digests} if digests else {})}

    def _letters(self, text: str) -> str:
        return re.sub("[^a-z]+" if self.merged else "[^a-z]", GAP, text.lower())

    @cached_property
    def written(self) -> str:
        """The text of the file."""
        return super().whole

    @property
    def unknown(self) -> str:
        """Letters that map to the "other" symbol."""
        return "".join(sorted({letter for letter in self.written.lower() if letter.isalpha() and letter > "z"}))

    @property
    def tokenizer_text(self) -> str:
        return GAP + string.ascii_lowercase


def _read(path: str) -> str:
    """Reads a text file; `InputError` if the name is neither a file nor known."""
    remedy = f"Names are {', '.join(TEXTS)}; anything else is a file."
    require(Path(path).is_file(), "test_texts", "names of texts, or text files", path, remedy)
    return read_text(Path(path), "test_texts")
