"""Byte-pair encoding as the programs read it."""

import json
from itertools import chain
from struct import pack
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastweights.adapters.standalone.sized import sized

LETTER, NUMBER, SPACE = 1, 2, 3
"""Kinds of characters. Words of byte-pair encoding have characters of one kind; 0 is any other kind."""
SPACES = [*range(9, 14), 0x20, 0x85, 0xA0, 0x1680, *range(0x2000, 0x200B), 0x2028, 0x2029, 0x202F, 0x205F, 0x3000]
"""The white space of Unicode."""
CODE_POINTS, SURROGATES = 0x110000, range(0xD800, 0xE000)


def pieces_of(tokenizer: Any) -> bytes:
    """The merges, the kinds of characters and the tokens of byte-pair encoding, behind their numbers."""
    tokens, merges = _tokens_and_merges(tokenizer)
    ranges = _ranges(_kinds(tokenizer.tokenizer.pre_tokenizer))
    numbers = np.array([*chain(*merges, *ranges)], dtype="<i4")
    return pack("<qqq", len(tokens), len(merges), len(ranges)) + numbers.tobytes() + sized(tokens)


def _tokens_and_merges(tokenizer: Any) -> tuple[list[bytes], list[tuple[int, ...]]]:
    """The bytes of every token; and left token, right token, rank and result of every merge, sorted."""
    model = json.loads(tokenizer.facts())["model"]
    numbers: dict[str, int] = model["vocab"]
    bytes_of = {character: byte for byte, character in enumerate(_alphabet())}
    tokens = [bytes(bytes_of[c] for c in token) for token in sorted(numbers, key=numbers.__getitem__)]
    pairs = [pair.split(" ") if isinstance(pair, str) else pair for pair in model["merges"]]
    merges = [(numbers[left], numbers[right], rank, numbers[left + right]) for rank, (left, right) in enumerate(pairs)]
    return tokens, sorted(merges)


def _alphabet() -> list[str]:
    """The character of every byte in the tokens of the package `tokenizers`: itself, if it can be printed."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = iter(range(0x100, 0x200))
    return [chr(byte if byte in printable else next(others)) for byte in range(256)]


def _kinds(pre_tokenizer: Any) -> NDArray[np.uint8]:
    """The kind of every code point, from the words of a text with all of them: Python has another Unicode version."""
    kinds = np.zeros(CODE_POINTS, np.uint8)
    left_out = {*SPACES, *SURROGATES}
    points = [point for point in range(CODE_POINTS) if point not in left_out]
    for _, (start, end) in pre_tokenizer.pre_tokenize_str("".join(map(chr, points))):
        first = chr(points[start])
        fits = [len(pre_tokenizer.pre_tokenize_str(other + first)) == 1 for other in "a1"]
        kinds[points[start] : points[end - 1] + 1] = LETTER if fits[0] else NUMBER if fits[1] else 0
    kinds[SPACES] = SPACE
    return kinds


def _ranges(kinds: NDArray[np.uint8]) -> list[tuple[int, int, int]]:
    """First code point, last code point and kind of every run of a kind but 0."""
    ends = [*(np.flatnonzero(np.diff(kinds)) + 1).tolist(), len(kinds)]
    runs = zip([0, *ends], ends, strict=False)
    return [(start, end - 1, int(kinds[start])) for start, end in runs if kinds[start]]
