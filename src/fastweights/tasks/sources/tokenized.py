"""Streams of the tokens of a text."""

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any

from torch import Tensor

from fastweights.registry import TOKENIZERS
from fastweights.tasks.kinds.stream import Stream
from fastweights.tokenizers._tokenizer import Tokenizer


class Tokenized(Stream):
    """A stream with the tokens of the tokenizer in its field `tokenizer`, which is trained on a part of the text."""

    tokenizer: str

    @property
    @abstractmethod
    def learnt_from(self) -> str:
        """Training text of the tokenizer."""

    @property
    @abstractmethod
    def sha256(self) -> Any:
        """Identifies the text."""

    @cached_property
    def learnt(self) -> Tokenizer:
        """The trained tokenizer."""
        tokenizer: Tokenizer = TOKENIZERS.load(self.tokenizer).learn(self.learnt_from)
        return tokenizer

    @cached_property
    def unit(self) -> str:  # type: ignore[override]
        unit: str = TOKENIZERS.load(self.tokenizer).unit
        return unit

    @property
    def arguments(self) -> tuple[Any, ...]:
        return (len(self.learnt),)

    def encode(self, text: str) -> Tensor:
        """Returns token numbers, int64 `[tokens]`; `InputError` for unknown characters."""
        return self.learnt.encode(text)

    def decode(self, tokens: Tensor) -> str:
        """Returns the text of token numbers `[tokens]`."""
        return self.learnt.decode(tokens)

    def facts(self) -> dict[str, Any]:
        return {"tokens": self.learnt.facts(), "sha256": self.sha256}

    def known_by(self, facts: Mapping[str, Any]) -> "Tokenized":
        known = replace(self)  # type: ignore[type-var]
        vars(known)["learnt"] = TOKENIZERS.load(self.tokenizer).from_facts(facts.get("tokens"))
        return known
