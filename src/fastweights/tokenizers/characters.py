"""Characters."""

from typing import Any, ClassVar

from torch import Tensor

from fastweights.tokenizers._tokenizer import Tokenizer, numbered, require_tokens


class Characters(Tokenizer):
    """Every character that occurs, in the order of their numbers in Unicode.

    >>> Characters.learn("hello").encode("hole")
    tensor([1, 3, 2, 0])
    """

    unit: ClassVar[str] = "character"

    def __init__(self, characters: str) -> None:
        self.characters = characters
        self.index = {character: number for number, character in enumerate(characters)}

    @classmethod
    def learn(cls, text: str) -> "Characters":
        """The characters of a text."""
        return cls("".join(sorted(set(text))))

    @classmethod
    def from_facts(cls, facts: Any) -> "Characters":
        """From the characters."""
        return cls("".join(require_tokens(list(facts) if isinstance(facts, str) else None)))

    def facts(self) -> str:
        """The characters, one after the other."""
        return self.characters

    def encode(self, text: str) -> Tensor:
        """A number a character."""
        return numbered(self.index, text)

    def decode(self, tokens: Tensor) -> str:
        """The same text."""
        return "".join(self.characters[number] for number in tokens.tolist())

    def __len__(self) -> int:
        return len(self.characters)
