"""A text as letters and gaps."""

import re
import string
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

from fastweights.tasks.text import Text

GAP = " "


@dataclass(frozen=True)
class Letters(Text):
    """c_1, c_2, ..., c_t -> c_{t + 1}, where c is one of 27: a letter from a to z, capital or not, or something else.

    The last tenth of the text is for the test, the twentieth before it validates. Letters that are not from a to z are
    something else, too.

    Args:
        text: A UTF-8 text file; The Wonderful Wizard of Oz if null.
        characters: Of the text, from its beginning; 0 for all.
        merged: Whether a run of what is no letter is one symbol, in place of one a character.

    Files: none for the book, which comes with the library (L. Frank Baum, 1900, public domain).

    Source: Gregor 2020, Sec. 5, which does not say whether runs are merged.
    """

    tokenizer: ClassVar[str] = "characters"  # type: ignore[misc]
    merged: bool = False

    @cached_property
    def whole(self) -> str:
        """What the file says, in letters and gaps."""
        return re.sub("[^a-z]+" if self.merged else "[^a-z]", GAP, self.written.lower())

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
