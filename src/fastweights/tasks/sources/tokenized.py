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
    def tokenizer_text(self) -> str:
        """Training text of the tokenizer."""

    @property
    @abstractmethod
    def sha256(self) -> Any:
        """Identifies the text."""

    @cached_property
    def trained_tokenizer(self) -> Tokenizer:
        """The trained tokenizer."""
        tokenizer: Tokenizer = TOKENIZERS.load(self.tokenizer).learn(self.tokenizer_text)
        return tokenizer

    @cached_property
    def unit(self) -> str:  # type: ignore[override]
        unit: str = TOKENIZERS.load(self.tokenizer).unit
        return unit

    @property
    def arguments(self) -> tuple[Any, ...]:
        return (len(self.trained_tokenizer),)

    def encode(self, text: str) -> Tensor:
        """Returns token numbers, int64 `[tokens]`; `InputError` for unknown characters."""
        return self.trained_tokenizer.encode(text)

    def decode(self, tokens: Tensor) -> str:
        """Returns the text of token numbers `[tokens]`."""
        return self.trained_tokenizer.decode(tokens)

    def facts(self) -> dict[str, Any]:
        return {"tokens": self.trained_tokenizer.facts(), "sha256": self.sha256}

    def restored_from(self, facts: Mapping[str, Any]) -> "Tokenized":
        known = replace(self)  # type: ignore[type-var]
        vars(known)["trained_tokenizer"] = TOKENIZERS.load(self.tokenizer).from_facts(facts.get("tokens"))
        return known
