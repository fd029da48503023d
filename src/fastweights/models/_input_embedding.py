"""Embeddings of the inputs of a task."""

import torch
from torch import Tensor, nn
from torch.nn.functional import embedding as look_up

from fastweights.core.arguments import Size, checked
from fastweights.core.errors import require_name


class PairEmbedding(nn.Module):
    """e_1(first) + e_2(second), with one additional id for a missing symbol."""

    @checked
    def __init__(self, symbols: int, width: Size) -> None:
        super().__init__()
        self.first = nn.Embedding(symbols + 1, width)
        self.second = nn.Embedding(symbols + 1, width)

    def forward(self, pairs: Tensor) -> Tensor:
        """int `[..., 2]` -> `[..., width]`."""
        first, second = pairs.unbind(-1)
        embedded: Tensor = self.first(first) + self.second(second)
        return embedded


class MappedEmbedding(nn.Sequential):
    """Linear maps of e(x), computed once per symbol if a batch has more tokens than there are symbols.

    Args:
        embedding: e.
        maps: The linear maps.
    """

    def __init__(self, embedding: nn.Module, *maps: nn.Module) -> None:
        super().__init__(embedding, *maps)
        assert isinstance(embedding, nn.Embedding)
        self.symbols = embedding.num_embeddings

    def forward(self, tokens: Tensor) -> Tensor:
        """int `[...]` -> `[..., width]`."""
        if tokens.numel() <= self.symbols:
            mapped: Tensor = super().forward(tokens)
            return mapped
        vectors: Tensor = super().forward(torch.arange(self.symbols, device=tokens.device))
        return look_up(tokens, vectors)


def make_input_embedding(kind: str, input_size: int, width: int) -> nn.Module:
    """Returns an embedding of tokens or of pairs of tokens, or a linear map of features."""
    kinds = {"tokens": nn.Embedding, "pairs": PairEmbedding, "features": nn.Linear}
    require_name("kind", kind, kinds)
    embedding: nn.Module = kinds[kind](input_size, width)
    return embedding
