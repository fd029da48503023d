"""Byte-pair encoding."""

from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor

from fastweights.core.errors import InputError, require
from fastweights.tokenizers._tokenizer import Tokenizer, lines, utf8


class BPE(Tokenizer):
    """Byte-pair encoding: subwords, from merges of the most frequent neighbours.

    It starts from bytes, uses the package `tokenizers`, and encodes every text.

    Source: Sennrich et al. 2016 (arXiv:1508.07909); over bytes: Radford et al. 2019.

    Args:
        tokenizer: Tokenizer of the package `tokenizers`.
    """

    unit: ClassVar[str] = "piece"
    size: ClassVar[int] = 8192

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer

    @classmethod
    def learn(cls, text: str, size: int | None = None) -> "BPE":
        """Trains byte-pair encoding on a text.

        Args:
            size: Maximum number of tokens, of which 256 are the bytes. None: 8192.
        """
        size = cls.size if size is None else size
        require(size >= 256, "size", "at least 256", size)
        import tokenizers

        tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
        tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.decoder = tokenizers.decoders.ByteLevel()
        alphabet = tokenizers.pre_tokenizers.ByteLevel.alphabet()
        trainer = tokenizers.trainers.BpeTrainer(
            vocab_size=size, initial_alphabet=sorted(alphabet), show_progress=False
        )
        tokenizer.train_from_iterator((f"{line}\n" for line in lines(text)), trainer)
        return cls(tokenizer)

    @classmethod
    def from_facts(cls, facts: Any) -> "BPE":
        """Restores the tokenizer from the JSON of the library."""
        import tokenizers

        try:
            return cls(tokenizers.Tokenizer.from_str(facts))
        except Exception as error:  # the library raises no specific class
            raise InputError(
                f"tokens must be those of a trained BPE, got the error: {error}. Restore the file."
            ) from None

    def facts(self) -> str:
        """Returns the JSON of the library."""
        text: str = self.tokenizer.to_str()
        return text

    def encode(self, text: str) -> Tensor:
        """Returns token numbers, int64 `[tokens]`."""
        pieces = [f"{line}\n" for line in lines(text)]
        if pieces and not text.endswith("\n"):
            pieces[-1] = pieces[-1][:-1]
        return torch.cat([torch.empty(0, dtype=torch.long), *self.encode_each(pieces)])

    def encode_each(self, texts: Sequence[str]) -> list[Tensor]:
        """Converts several texts to token numbers, on all cores.

        Args:
            texts: Texts.

        Returns:
            The token numbers of every text, int64 `[tokens]`.
        """
        for text in texts:
            utf8(text)
        encodings = self.tokenizer.encode_batch(list(texts), add_special_tokens=False)
        return [torch.tensor(one.ids, dtype=torch.long) for one in encodings]

    def decode(self, tokens: Tensor) -> str:
        """Returns the text, with a replacement character for invalid UTF-8."""
        text: str = self.tokenizer.decode(tokens.tolist(), skip_special_tokens=False)
        return text

    def __len__(self) -> int:
        size: int = self.tokenizer.get_vocab_size()
        return size
