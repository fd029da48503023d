"""Words as tokens."""

from collections import Counter
from collections.abc import Iterator
from itertools import chain
from typing import Any, ClassVar

from torch import Tensor

from fastweights.tokenizers._tokenizer import Tokenizer, lines, numbered, require_tokens

END, UNKNOWN = "<eos>", "<unk>"


class Words(Tokenizer):
    """Words between blanks, and "<eos>" at the end of every line, including empty lines.

    "<eos>" is 0. All words of the training text follow by frequency, ties in order of occurrence. Other words are
    "<unk>", which is the last token unless it occurs in the text.

    Source: the vocabulary of WikiText-103 with 267,735 words in Schlag et al. 2021 (arXiv:2102.11174), Irie et al. 2021
    (arXiv:2106.06295) and Dai et al. 2019 (arXiv:1901.02860).

    Args:
        tokens: Words, in the order of their numbers.

    Example:
        >>> words = Words.learn("to be or\\nnot to be\\n")
        >>> words.tokens
        ['<eos>', 'to', 'be', 'or', 'not', '<unk>']
        >>> words.encode("to see\\n"), words.encode("to")
        (tensor([1, 5, 0]), tensor([1]))
    """

    unit: ClassVar[str] = "word"

    def __init__(self, tokens: list[str]) -> None:
        self.tokens = tokens
        self.index = {token: number for number, token in enumerate(tokens)}

    @classmethod
    def learn(cls, text: str) -> "Words":
        """Collects the words of a text."""
        counts = Counter(chain.from_iterable(line.split() for line in lines(text)))
        special = [END] if UNKNOWN in counts else [END, UNKNOWN]
        words = [word for word, _ in counts.most_common() if word != END]
        return cls([END, *words, *special[1:]])

    @classmethod
    def from_facts(cls, facts: Any) -> "Words":
        """Restores the tokenizer from its words in order."""
        return cls(require_tokens(facts, least=2))

    def facts(self) -> list[str]:
        """Returns the words in order."""
        return self.tokens

    def encode(self, text: str) -> Tensor:
        """Returns one number per word and per end of a line."""
        return numbered(self.index, self._pieces(text))

    def _pieces(self, text: str) -> Iterator[str]:
        for number, line in enumerate(lines(text)):
            if number:
                yield END
            yield from (word if word in self.index else UNKNOWN for word in line.split())
        if text.endswith("\n"):
            yield END

    def decode(self, tokens: Tensor) -> str:
        """Returns the text, with blanks between words, and lines."""
        words = " ".join(self.tokens[number] for number in tokens.tolist())
        return words.replace(f" {END} ", "\n").replace(f" {END}", "\n").replace(f"{END} ", "\n").replace(END, "\n")

    def __len__(self) -> int:
        return len(self.tokens)
