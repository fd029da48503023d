"""Tokenizers as the programs read them: a C header, and the tokens as bytes in the weight file."""

from struct import pack
from typing import Any

from fastweights.adapters.standalone.pieces import pieces_of
from fastweights.adapters.standalone.sized import sized
from fastweights.adapters.standalone.standalone_program import ProgramPart
from fastweights.core.errors import invalid
from fastweights.tokenizers.words import END, UNKNOWN


def tokenizer_of(tokenizer: Any) -> ProgramPart:
    """The tokenizer of a program; `InputError` for a user-defined one."""
    match getattr(tokenizer, "unit", None):
        case "character":
            return ProgramPart("characters.h", sized(c.encode() for c in tokenizer.facts()))
        case "byte":
            return ProgramPart("characters.h", sized(bytes([n]) for n in range(len(tokenizer))))
        case "piece":
            return ProgramPart("pieces.h", pieces_of(tokenizer))
        case "word":
            return ProgramPart("words.h", _words_of(tokenizer.facts()))
    raise invalid("tokenizer", "a tokenizer of the library", type(tokenizer).__name__, "Use Python.")


def _words_of(words: list[str]) -> bytes:
    """The count of words, those for line ends and unknown words (-1: none), the order of their bytes, and the words."""
    tokens = [word.encode() for word in words]
    special = [words.index(word) if word in words else -1 for word in (END, UNKNOWN)]
    order = sorted(range(len(tokens)), key=tokens.__getitem__)
    return pack(f"<3q{len(order)}i", len(tokens), *special, *order) + sized(tokens)
