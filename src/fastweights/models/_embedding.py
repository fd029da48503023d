"""Embeddings whose vectors have length 1 on average, and output layers that share their weights."""

from torch import nn


class Embedding(nn.Embedding):
    """Vectors of the tokens, drawn from N(0, 1 / D)."""

    def reset_parameters(self) -> None:
        """Draws the vectors from N(0, 1 / D)."""
        nn.Embedding.reset_parameters(self)
        nn.init.normal_(self.weight, std=self.embedding_dim**-0.5)


def tokens_of(embedding: nn.Module) -> int:
    """Number of tokens of an embedding, which an adapter may wrap: its first parameter has a row per token."""
    return len(next(embedding.parameters()))


class TiedLinear(nn.Linear):
    """E h + b, where E is the weight of an embedding: call `tie` once both exist, and after each `to_empty()`.

    Args:
        embedding: The embedding.
        bias: Whether there is a b.
    """

    def __init__(self, embedding: nn.Embedding, bias: bool = True) -> None:
        super().__init__(embedding.embedding_dim, embedding.num_embeddings, bias)
        self.tie(embedding)

    def tie(self, embedding: nn.Embedding) -> None:
        """Shares the weight of an embedding."""
        self.weight = embedding.weight

    def reset_parameters(self) -> None:
        """Draws b; the embedding initialises its weight."""
        if self.bias is not None:
            bound = self.in_features**-0.5
            nn.init.uniform_(self.bias, -bound, bound)
