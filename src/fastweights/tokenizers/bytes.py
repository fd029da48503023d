"""Bytes as tokens."""

from typing import Any, ClassVar

import torch
from torch import Tensor

from fastweights.core.errors import require
from fastweights.tokenizers._tokenizer import Tokenizer, utf8


class Bytes(Tokenizer):
    """The 256 bytes of UTF-8, which encode every text without training.

    >>> Bytes().decode(Bytes().encode("Übung"))
    'Übung'
    """

    unit: ClassVar[str] = "byte"

    @classmethod
    def learn(cls, text: str) -> "Bytes":
        """Returns the tokenizer, which needs no training."""
        return cls()

    @classmethod
    def from_facts(cls, facts: Any) -> "Bytes":
        """Returns the tokenizer; `InputError` unless the facts are None."""
        require(facts is None, "tokens", "none", "some", "Restore the file.")
        return cls()

    def facts(self) -> None:
        """Returns None, since there is no trained state."""

    def encode(self, text: str) -> Tensor:
        """Returns one number per byte."""
        return torch.frombuffer(bytearray(utf8(text)), dtype=torch.uint8).long() if text else torch.empty(0).long()

    def decode(self, tokens: Tensor) -> str:
        """Returns the text, with a replacement character for invalid UTF-8."""
        return bytes(tokens.tolist()).decode(errors="replace")

    def __len__(self) -> int:
        return 256
