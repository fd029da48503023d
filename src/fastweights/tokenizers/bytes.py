"""Bytes."""

from typing import Any, ClassVar

import torch
from torch import Tensor

from fastweights.core.errors import require
from fastweights.tokenizers._tokenizer import Tokenizer, utf8


class Bytes(Tokenizer):
    """The 256 bytes of UTF-8: every text can be written with them, whatever was learnt.

    >>> Bytes().decode(Bytes().encode("Übung"))
    'Übung'
    """

    unit: ClassVar[str] = "byte"

    @classmethod
    def learn(cls, text: str) -> "Bytes":
        """Nothing is learnt."""
        return cls()

    @classmethod
    def from_facts(cls, facts: Any) -> "Bytes":
        """From nothing."""
        require(facts is None, "tokens", "none", "some", "Restore the file.")
        return cls()

    def facts(self) -> None:
        """Nothing."""

    def encode(self, text: str) -> Tensor:
        """A number a byte."""
        return torch.frombuffer(bytearray(utf8(text)), dtype=torch.uint8).long() if text else torch.empty(0).long()

    def decode(self, tokens: Tensor) -> str:
        """The same text; a mark of replacement for what is no UTF-8."""
        return bytes(tokens.tolist()).decode(errors="replace")

    def __len__(self) -> int:
        return 256
