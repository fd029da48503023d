"""Tokenizers of texts, one per file."""

from fastweights.tokenizers.bpe import BPE
from fastweights.tokenizers.bytes import Bytes
from fastweights.tokenizers.characters import Characters
from fastweights.tokenizers.words import Words

__all__ = [
    "BPE",
    "Bytes",
    "Characters",
    "Words",
]
