"""Base class of tokenizers, and checks of texts."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from typing import Any, ClassVar

import torch
from torch import Tensor

from fastweights.core.docstrings import inherit
from fastweights.core.errors import InputError, invalid, require

LONGEST = 8
"""Number of previous tokens for incremental decoding; no character has more tokens."""


class Tokenizer(ABC):
    """Base class of tokenizers: text to token numbers and back.

    `decode(encode(text))` is the text, up to normalisation by the tokenizer. `facts()` is the trained state as plain
    numbers and strings for JSON, from which `from_facts` restores the tokenizer.
    """

    unit: ClassVar[str]
    """Name of the unit of a token."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Completes the docstrings of every tokenizer."""
        super().__init_subclass__(**kwargs)
        inherit(cls)

    @classmethod
    @abstractmethod
    def learn(cls, text: str) -> "Tokenizer":
        """Trains a tokenizer on a text.

        Args:
            text: Training text.

        Returns:
            The tokenizer.
        """

    @classmethod
    @abstractmethod
    def from_facts(cls, facts: Any) -> "Tokenizer":
        """Restores a tokenizer.

        Args:
            facts: Trained state that `facts()` returned.

        Returns:
            The tokenizer.

        Raises:
            InputError: the facts are invalid.
        """

    @abstractmethod
    def facts(self) -> Any:
        """Returns the trained state as JSON values.

        Returns:
            The trained state, for `from_facts`.
        """

    @abstractmethod
    def encode(self, text: str) -> Tensor:
        """Converts text to token numbers.

        Args:
            text: Text.

        Returns:
            The token numbers, int64 `[tokens]`.

        Raises:
            InputError: a part of the text has no token.
        """

    @abstractmethod
    def decode(self, tokens: Tensor) -> str:
        """Converts token numbers to text.

        Args:
            tokens: Token numbers, int `[tokens]`.

        Returns:
            The text.
        """

    def decode_stream(self, tokens: Iterable[Tensor], before: Tensor) -> Iterator[str]:
        """Decodes tokens one by one, for streaming output.

        A word may start with a blank. The tokens of a character yield empty strings until its last byte.

        Args:
            tokens: New tokens, int `[1]` each.
            before: Tokens before them, int `[n]`.

        Yields:
            The text that each token adds.
        """
        recent = before[-LONGEST:]
        decoded = self.decode(recent)
        for token in tokens:
            recent = torch.cat([recent, token])
            whole = self.decode(recent)
            if whole.endswith("\ufffd") and len(recent) < 2 * LONGEST:
                yield ""
                continue
            yield whole[len(decoded) :]
            recent = recent[-LONGEST:]
            decoded = self.decode(recent)

    @abstractmethod
    def __len__(self) -> int:
        """Number of different tokens."""


def numbered(index: dict[str, int], pieces: Iterable[str]) -> Tensor:
    """Token numbers of pieces of text; `InputError` with the first unknown piece."""
    import numpy

    try:
        return torch.from_numpy(numpy.fromiter((index[piece] for piece in pieces), dtype=numpy.int64))
    except KeyError as error:
        remedy = "Leave it out, or use --tokenizer bytes, which encodes every text."
        raise invalid("text", "composed of known tokens", repr(error.args[0]), remedy) from None


def utf8(text: str) -> bytes:
    """The bytes of a text; `InputError` for a lone surrogate, which UTF-8 cannot encode."""
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        got = f"{text[error.start]!r} at {error.start}"
        raise InputError(f"text must be encodable as UTF-8, got {got}. Decode it again.") from None


def require_tokens(facts: Any, least: int = 1) -> list[str]:
    """Checks that facts are different strings."""
    fits = isinstance(facts, list) and all(isinstance(token, str) for token in facts)
    fits = fits and len(set(facts)) == len(facts) >= least
    require(fits, "tokens", f"different strings, at least {least}", "something else", "Restore the file.")
    return list(facts)


def lines(text: str) -> Iterator[str]:
    """Yields the lines of a text without their ends, since a list of all lines might not fit into memory."""
    start = 0
    while start < len(text):
        end = text.find("\n", start)
        end = len(text) if end < 0 else end
        yield text[start:end]
        start = end + 1
