"""Tokens as the programs read them."""

from collections.abc import Iterable
from typing import Any

from fastweights.core.errors import require


def tokens_of(tokenizer: Any) -> bytes:
    """Every token of a tokenizer of characters or bytes; `InputError` for another one."""
    remedy = "Train with --tokenizer characters or --tokenizer bytes."
    require(tokenizer.unit in ("character", "byte"), "tokenizer", "characters or bytes", f"{tokenizer.unit}s", remedy)
    if tokenizer.unit == "byte":
        return sized(bytes([n]) for n in range(len(tokenizer)))
    return sized(character.encode() for character in tokenizer.facts())


def sized(pieces: Iterable[bytes]) -> bytes:
    """Every piece behind a byte with its size."""
    return b"".join(bytes([len(piece)]) + piece for piece in pieces)
