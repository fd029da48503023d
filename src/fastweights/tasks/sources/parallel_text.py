"""Parallel text: each line of one file is a translation of the same line of the other."""

import hashlib
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import compress, islice
from typing import Any, ClassVar

from torch import Tensor

from fastweights.core.errors import require
from fastweights.core.files import decoded
from fastweights.tasks.kinds.pairs import Pairs, PairSet, Sentences
from fastweights.tokenizers.bpe import BPE

Lines = tuple[str, ...]


@dataclass(frozen=True)
class Parallel(Pairs):
    """Sentences of parallel files, tokenized with a vocabulary that both languages share.

    Args:
        pieces: Number of tokens, learnt from the training sentences; 256 of them are the bytes.
        sentences: Number of training sentences, from the start of the files; 0 for all.
        held_out: Number of validation pairs, and of test pairs, from the start of the files; 0 for all.
        longest: Training pairs with more tokens in either language are skipped, as are those with an empty side.
    """

    limited: ClassVar[frozenset[str]] = frozenset({"train"})
    """Parts to which `longest` applies."""

    pieces: int = 8000
    sentences: int = 0
    held_out: int = 0
    longest: int = 250

    def __post_init__(self) -> None:
        require(256 <= self.pieces <= 1 << 20, "pieces", f"from 256 to {1 << 20:,}", self.pieces)
        require(self.sentences >= 0, "sentences", "at least 0", self.sentences)
        require(self.held_out >= 0, "held_out", "at least 0", self.held_out)
        require(self.longest >= 1, "longest", "at least 1", self.longest)

    @abstractmethod
    def read(self, part: str, language: str) -> bytes:
        """Reads a file of a part in one language.

        Args:
            part: "train", "validation" or "test".
            language: "source" or "target".

        Returns:
            The content of the file, UTF-8.
        """

    @cached_property
    def tokenizer(self) -> BPE:
        """The tokenizer, trained on both languages."""
        return BPE.learn("\n".join(line for side in self._lines("train") for line in side), self.pieces)

    @property
    def vocab_size(self) -> int:
        return len(self.tokenizer) + 2

    @property
    def bos_token_id(self) -> int:
        return len(self.tokenizer)

    @property
    def eos_token_id(self) -> int:
        return len(self.tokenizer) + 1

    @cached_property
    def training(self) -> PairSet:
        return self._set("train")

    @cached_property
    def validation(self) -> PairSet:
        return self._set("validation")

    @cached_property
    def test(self) -> PairSet:
        return self._set("test")

    def encode(self, text: str) -> Tensor:
        return self.tokenizer.encode(text)

    def decode(self, tokens: Tensor) -> str:
        return self.tokenizer.decode(tokens[tokens < len(self.tokenizer)])

    def facts(self) -> dict[str, Any]:
        return {"tokens": self.tokenizer.facts(), "sha256": self.sha256}

    @cached_property
    def sha256(self) -> dict[str, str]:
        """SHA-256 of the lines of every part."""
        return {part: _digest(self._lines(part)) for part in ("train", "validation", "test")}

    def restored_from(self, facts: Mapping[str, Any]) -> "Parallel":
        known = replace(self)
        vars(known)["tokenizer"] = BPE.from_facts(facts.get("tokens"))
        return known

    def _set(self, part: str) -> PairSet:
        source, target = self._lines(part)
        sources, targets = (self.tokenizer.encode_each(side) for side in (source, target))
        fits = [
            part not in self.limited or len(s) <= self.longest >= len(t) for s, t in zip(sources, targets, strict=True)
        ]
        sentences = [Sentences.of(compress(side, fits)) for side in (sources, targets)]
        return PairSet(sentences[0], sentences[1], tuple(compress(target, fits)))

    def _lines(self, part: str) -> tuple[Lines, Lines]:
        source, target = (lines_of(self.read(part, language), part) for language in ("source", "target"))
        equal = f"{len(source):,} and {len(target):,}"
        require(len(source) == len(target), f"{part} files", "files with equal numbers of lines", equal)
        is_complete = [bool(s and t) for s, t in zip(source, target, strict=True)]
        if part != "train":
            require(
                all(is_complete),
                f"{part} files",
                "files without empty lines",
                f"line {[*is_complete, False].index(False) + 1}",
            )
            return source[: self.held_out or None], target[: self.held_out or None]
        most = self.sentences or None
        return tuple(islice(compress(source, is_complete), most)), tuple(islice(compress(target, is_complete), most))


def _digest(sides: tuple[Lines, Lines]) -> str:
    return hashlib.sha256("\0".join(map("\n".join, sides)).encode()).hexdigest()


def lines_of(content: bytes, name: str) -> Lines:
    """The lines of a UTF-8 file, without blanks at either end."""
    # A stray carriage return inside a sentence must not split it.
    inside = content.replace(b"\r\n", b"\n").replace(b"\r", b" ") if b"\n" in content else content
    text = decoded(inside, f"{name} file", "one")
    lines = tuple(line.strip() for line in text.removesuffix("\n").split("\n"))
    return lines
