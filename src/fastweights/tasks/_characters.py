"""Text as a stream of characters, cut into a training, a validation and a held-out part."""

import hashlib
import io
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import torch
from torch import Tensor

from fastweights.errors import InputError, require
from fastweights.files import read_file

OZ = Path(__file__).parent / "data" / "wizard_of_oz.txt"
"""The Wonderful Wizard of Oz by L. Frank Baum, 1900 (public domain)."""

HELD_OUT = 0.1
VALIDATION = 0.05


@dataclass(frozen=True)
class Characters:
    """A text and the characters that it is made of. Its last tenth is held out, a twentieth before it validates."""

    text: str
    vocabulary: str

    @staticmethod
    def of(text: str) -> "Characters":
        """The vocabulary is every character of the text, sorted.

        >>> Characters.of("hello").vocabulary
        'ehlo'
        """
        return Characters(text, "".join(sorted(set(text))))

    @staticmethod
    def read(path: Path | str) -> "Characters":
        """Reads a UTF-8 file; `InputError` if it is missing, empty or in another encoding."""
        content = read_file(Path(path), "text")
        try:
            text = io.TextIOWrapper(io.BytesIO(content), encoding="utf-8").read()
        except UnicodeDecodeError as error:
            remedy = "Convert it, for example with iconv."
            raise InputError(f"text must be UTF-8, got {path} with a bad byte at {error.start}. {remedy}") from None
        require(text != "", "text", "a file with characters in it", f"the empty {path}")
        return Characters.of(text)

    @cached_property
    def sha256(self) -> str:
        """Identifies the text."""
        return hashlib.sha256(self.text.encode()).hexdigest()

    @cached_property
    def tokens(self) -> Tensor:
        """The text as int64 `[characters]`."""
        return self.encode(self.text)

    def encode(self, text: str) -> Tensor:
        """Token numbers, int64 `[characters]`; `InputError` for a character outside the vocabulary."""
        index = {character: number for number, character in enumerate(self.vocabulary)}
        unknown = sorted(set(text) - set(index))
        require(not unknown, "text", "of characters that the model knows", f"{unknown[:8]}", "Leave them out.")
        return torch.tensor([index[character] for character in text], dtype=torch.long)

    def decode(self, tokens: Tensor) -> str:
        """The text of token numbers `[characters]`."""
        return "".join(self.vocabulary[number] for number in tokens.tolist())

    @property
    def training(self) -> Tensor:
        """All before the validation part."""
        return self.tokens[: self._cuts[0]]

    @property
    def validation(self) -> Tensor:
        """For choosing when to stop and which weights to keep."""
        return self.tokens[self._cuts[0] : self._cuts[1]]

    @property
    def held_out(self) -> Tensor:
        """For the report."""
        return self.tokens[self._cuts[1] :]

    @property
    def before_held_out(self) -> Tensor:
        """Training and validation part: what a baseline that chooses nothing may fit."""
        return self.tokens[: self._cuts[1]]

    @property
    def _cuts(self) -> tuple[int, int]:
        n = len(self.text)
        return round(n * (1 - HELD_OUT - VALIDATION)), round(n * (1 - HELD_OUT))

    def __len__(self) -> int:
        return len(self.text)


@dataclass(frozen=True)
class Streams:
    """A sequence as parallel streams read window by window, so that a state can be carried from each to the next.

    >>> streams = Streams(torch.arange(11), batch_size=2, window=2)
    >>> len(streams), streams[1]
    (2, (tensor([[2, 3], [7, 8]]), tensor([[3, 4], [8, 9]])))
    """

    tokens: Tensor
    batch_size: int
    window: int

    def __post_init__(self) -> None:
        for name in ("batch_size", "window"):
            require(getattr(self, name) >= 1, name, "at least 1", getattr(self, name))
        needed = self.batch_size * self.window + 1
        remedy = "Take a longer text, a smaller batch_size or a smaller window."
        require(len(self.tokens) >= needed, "text", f"of at least {needed} training tokens", len(self.tokens), remedy)

    def __len__(self) -> int:
        """Windows a pass; what does not fill a window at the end is left out."""
        return self._length // self.window

    def __getitem__(self, window: int) -> tuple[Tensor, Tensor]:
        """Inputs and targets, `[batch_size, window]` each."""
        start = window * self.window
        inputs, targets = self.tokens[:-1], self.tokens[1:]
        return tuple(  # type: ignore[return-value]
            part[: self.batch_size * self._length].view(self.batch_size, -1)[:, start : start + self.window]
            for part in (inputs, targets)
        )

    @property
    def _length(self) -> int:
        return (len(self.tokens) - 1) // self.batch_size
