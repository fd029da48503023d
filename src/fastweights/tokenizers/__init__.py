"""How a text is cut into tokens."""

from fastweights.tokenizers.bpe import Bpe
from fastweights.tokenizers.bytes import Bytes
from fastweights.tokenizers.characters import Characters
from fastweights.tokenizers.words import Words

__all__ = [
    "Bpe",
    "Bytes",
    "Characters",
    "Words",
]
