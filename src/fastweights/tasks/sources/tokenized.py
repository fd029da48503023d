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
    """A stream whose tokens are those of `tokenizer`, one of its fields, which learns from a part of the text."""

    tokenizer: str

    @property
    @abstractmethod
    def learnt_from(self) -> str:
        """The text that the tokenizer learns from."""

    @property
    @abstractmethod
    def sha256(self) -> Any:
        """Identifies the text."""

    @cached_property
    def learnt(self) -> Tokenizer:
        """The tokenizer, which has learnt."""
        found: Tokenizer = TOKENIZERS.load(self.tokenizer).learn(self.learnt_from)
        return found

    @cached_property
    def unit(self) -> str:  # type: ignore[override]
        unit: str = TOKENIZERS.load(self.tokenizer).unit
        return unit

    @property
    def arguments(self) -> tuple[Any, ...]:
        return (len(self.learnt),)

    def encode(self, text: str) -> Tensor:
        """Token numbers, int64 `[tokens]`; `InputError` for what the tokenizer does not know."""
        return self.learnt.encode(text)

    def decode(self, tokens: Tensor) -> str:
        """The text of token numbers `[tokens]`."""
        return self.learnt.decode(tokens)

    def facts(self) -> dict[str, Any]:
        return {"tokens": self.learnt.facts(), "sha256": self.sha256}

    def known_by(self, facts: Mapping[str, Any]) -> "Tokenized":
        known = replace(self)  # type: ignore[type-var]
        vars(known)["learnt"] = TOKENIZERS.load(self.tokenizer).from_facts(facts.get("tokens"))
        return known
