"""Characters as tokens."""

from typing import Any, ClassVar

from torch import Tensor

from fastweights.tokenizers._tokenizer import Tokenizer, numbered, require_tokens


class Characters(Tokenizer):
    """Characters: those of the training text, in the order of Unicode.

    Args:
        characters: Characters, in the order of their numbers.

    Example:
        >>> Characters.learn("hello").encode("hole")
        tensor([1, 3, 2, 0])
    """

    unit: ClassVar[str] = "character"

    def __init__(self, characters: str) -> None:
        self.characters = characters
        self.index = {character: number for number, character in enumerate(characters)}

    @classmethod
    def learn(cls, text: str) -> "Characters":
        """Collects the characters of a text."""
        return cls("".join(sorted(set(text))))

    @classmethod
    def from_facts(cls, facts: Any) -> "Characters":
        """Restores the tokenizer from its characters."""
        return cls("".join(require_tokens(list(facts) if isinstance(facts, str) else None)))

    def facts(self) -> str:
        """Returns the characters as one string."""
        return self.characters

    def encode(self, text: str) -> Tensor:
        """Returns one number per character."""
        return numbered(self.index, text)

    def decode(self, tokens: Tensor) -> str:
        """Returns the text."""
        return "".join(self.characters[number] for number in tokens.tolist())

    def __len__(self) -> int:
        return len(self.characters)
