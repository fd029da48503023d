"""What every tokenizer does, and what is refused."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from typing import Any, ClassVar

import torch
from torch import Tensor

from fastweights.core.errors import InputError, invalid, require

LONGEST = 8
"""Tokens that a character may be made of, and more."""


class Tokenizer(ABC):
    """Text to numbers and back.

    `decode(encode(text))` is the text, or as much of it as the tokenizer keeps. What was learnt of a text is `facts()`,
    plain numbers and strings that JSON can hold, from which `from_facts` makes the same tokenizer again.
    """

    unit: ClassVar[str]
    """What a token is."""

    @classmethod
    @abstractmethod
    def learn(cls, text: str) -> "Tokenizer":
        """The tokens of a text for training."""

    @classmethod
    @abstractmethod
    def from_facts(cls, facts: Any) -> "Tokenizer":
        """The tokenizer that has these `facts()`; `InputError` if nothing has."""

    @abstractmethod
    def facts(self) -> Any:
        """What was learnt."""

    @abstractmethod
    def encode(self, text: str) -> Tensor:
        """Numbers from 0, int64 `[tokens]`; `InputError` for what it has no token for."""

    @abstractmethod
    def decode(self, tokens: Tensor) -> str:
        """The text of numbers `[tokens]`."""

    def said(self, tokens: Iterable[Tensor], before: Tensor) -> Iterator[str]:
        """What each token `[1]` adds to a text, for showing it as it comes: that depends on those before it, `[n]`.

        There may be a blank in front of a word, and nothing comes of a character before its last byte.
        """
        known = before[-LONGEST:]
        told = self.decode(known)
        for token in tokens:
            known = torch.cat([known, token])
            whole = self.decode(known)
            if whole.endswith("\ufffd") and len(known) < 2 * LONGEST:
                yield ""
                continue
            yield whole[len(told) :]
            known = known[-LONGEST:]
            told = self.decode(known)

    @abstractmethod
    def __len__(self) -> int:
        """Number of tokens it knows."""


def numbered(index: dict[str, int], pieces: Iterable[str]) -> Tensor:
    """The numbers of pieces of text; `InputError` names some that have none."""
    import numpy

    try:
        return torch.from_numpy(numpy.fromiter((index[piece] for piece in pieces), dtype=numpy.int64))
    except KeyError as error:
        remedy = "Leave it out, or take --tokenizer bytes, which knows everything."
        raise invalid("text", "of tokens that are known", repr(error.args[0]), remedy) from None


def utf8(text: str) -> bytes:
    """The bytes of a text; `InputError` for half of a surrogate pair, which no UTF-8 has."""
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        got = f"{text[error.start]!r} at {error.start}"
        raise InputError(f"text must be of characters that UTF-8 has, got {got}. Decode it again.") from None


def require_tokens(facts: Any, least: int = 1) -> list[str]:
    """Facts that are to be different strings."""
    fits = isinstance(facts, list) and all(isinstance(token, str) for token in facts)
    fits = fits and len(set(facts)) == len(facts) >= least
    require(fits, "tokens", f"different strings, at least {least}", "something else", "Restore the file.")
    return list(facts)


def lines(text: str) -> Iterator[str]:
    """The lines of a text without their ends, one by one: a text may be far larger than memory for all of them."""
    start = 0
    while start < len(text):
        end = text.find("\n", start)
        end = len(text) if end < 0 else end
        yield text[start:end]
        start = end + 1
