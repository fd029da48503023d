"""A text of the user, with separate files for validation and test if there are any."""

import hashlib
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from fastweights.core.files import read_text
from fastweights.tasks.sources.data_files import MissingFile
from fastweights.tasks.text import HELD_OUT, VALIDATION, Text


@dataclass(frozen=True)
class TextFiles(Text):
    """Language modelling of text files of the user.

    Input -> target: `c_1, c_2, ..., c_t -> c_(t+1)`, the next token.

    The last tenth of the text is for the test and the twentieth before it for validation, unless they have files of
    their own. Kneser-Ney n-grams of order 1 to 5 are the baselines, fitted on training and validation part.

    Files: UTF-8 texts.

    Args:
        text: Text file.
        validation_text: Text file for validation; null for a part of the text.
        test_text: Text file for the test; null for a part of the text.

    Source: the baselines are those of Kneser and Ney 1995.
    """

    validation_text: str | None = None
    test_text: str | None = None

    @cached_property
    def whole(self) -> str:
        if self.text is None:
            raise MissingFile("text must be a text file, got none. Say text=FILE.")
        return super().whole

    @cached_property
    def others(self) -> dict[str, str]:
        """The texts with a separate file."""
        files = {"validation_text": self.validation_text, "test_text": self.test_text}
        return {name: read_text(Path(file), name) for name, file in files.items() if file}

    @property
    def tokenizer_text(self) -> str:
        return "".join((self.whole, *self.others.values())) if self.tokenizer == "characters" else self._parts[0]

    @property
    def sha256(self) -> str:
        return hashlib.sha256("\0".join((self.content, *self.others.values())).encode()).hexdigest()

    @property
    def summary_line(self) -> str:
        sizes = f"{len(self.training):,}, {len(self.validation):,} and {len(self.test):,} {self.unit}s"
        return f"{sizes} for training, validation and the test"

    @property
    def _parts(self) -> tuple[str, str, str]:
        n, held_out = len(self.content), 0 if self.test_text else HELD_OUT
        second = round(n * (1 - held_out))
        first = second if self.validation_text else round(n * (1 - held_out - VALIDATION))
        validation = self.others.get("validation_text", self.content[first:second])
        return self.content[:first], validation, self.others.get("test_text", self.content[second:])
