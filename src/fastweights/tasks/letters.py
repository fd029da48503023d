"""A text as letters and gaps."""

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
from fastweights.tasks.sources.texts import babi, noise, shakespeare
from fastweights.tasks.text import Text
from fastweights.tasks.wikitext_2 import Wikitext2

GAP = " "


def wikipedia() -> str:
    """Good articles of Wikipedia, the test part of WikiText-2."""
    return decoded(Wikitext2().read("test"), "test text", "one")


TEXTS = {"shakespeare": shakespeare, "babi": babi, "wikipedia": wikipedia, "noise": noise}
"""Other texts by name."""


@dataclass(frozen=True)
class Letters(Text):
    """c_1, c_2, ..., c_t -> c_{t + 1}, where c is one of 27: a letter from a to z, capital or not, or something else.

    The last tenth of the text is for the test, the twentieth before it validates. Letters that are not from a to z are
    something else, too.

    Args:
        text: A UTF-8 text file; The Wonderful Wizard of Oz if null.
        characters: Of the text, from its beginning; 0 for all.
        merged: Whether a run of what is no letter is one symbol, in place of one a character.
        elsewhere: Other texts, of which nothing is learned: "shakespeare", "babi", "wikipedia", "noise" (letters at
            random), or UTF-8 text files.
        length: Symbols of each of them that are read.

    Files: none for the book, which comes with the library (L. Frank Baum, 1900, public domain); those of other texts.

    Source: Gregor 2020, Sec. 5, which does not say whether runs are merged.
    """

    tokenizer: ClassVar[str] = "characters"  # type: ignore[misc]
    merged: bool = False
    elsewhere: tuple[str, ...] = ()
    length: int = 20_000

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.length >= 1, "length", "at least 1", self.length)
        object.__setattr__(self, "elsewhere", tuple(self.elsewhere))

    @cached_property
    def whole(self) -> str:
        """What the file says, in letters and gaps."""
        return self._letters(self.written)

    @cached_property
    def unseen(self) -> dict[str, Tensor]:
        """The other texts, by name; a file's is without its folder."""
        names = [Path(place).name for place in self.elsewhere]
        require(len({*names}) == len(names), "elsewhere", "of different names", ", ".join(names))
        read = [TEXTS[place]() if place in TEXTS else _own(place) for place in self.elsewhere]
        texts = dict(zip(names, read, strict=True))
        return {name: self.encode(self._letters(text)[: self.length]) for name, text in texts.items()}

    def facts(self) -> dict[str, Any]:
        digests = {name: hashlib.sha256(text.numpy().tobytes()).hexdigest() for name, text in self.unseen.items()}
        return {**super().facts(), **({"elsewhere": digests} if digests else {})}

    def _letters(self, text: str) -> str:
        return re.sub("[^a-z]+" if self.merged else "[^a-z]", GAP, text.lower())

    @cached_property
    def written(self) -> str:
        """What the file says."""
        return super().whole

    @property
    def unknown(self) -> str:
        """The letters that are read as something else."""
        return "".join(sorted({letter for letter in self.written.lower() if letter.isalpha() and letter > "z"}))

    @property
    def learnt_from(self) -> str:
        return GAP + string.ascii_lowercase


def _own(path: str) -> str:
    """A text file, which may be anything but what has a name."""
    remedy = f"Names are {', '.join(TEXTS)}; anything else is a file."
    require(Path(path).is_file(), "elsewhere", "names of texts, or text files", path, remedy)
    return read_text(Path(path), "elsewhere")
