"""Dropout of whole words."""

import torch
from torch import Tensor, nn

from fastweights.core.arguments import Probability, checked


class WordDropout(nn.Module):
    """Dropout of whole words: sets the embeddings of randomly chosen words to 0 in training.

    A word is dropped at all of its positions in a forward pass. The other embeddings are divided by 1 - p.

    Source: Gal and Ghahramani 2016 (arXiv:1512.05287); Merity, Keskar and Socher 2018 (arXiv:1708.02182), Sec. 4.3,
    "embedding dropout".

    Args:
        p: Probability of dropping a word, from 0 to below 1.

    Example:
        >>> dropout = WordDropout(0.2)
        >>> tokens = torch.randint(10, (2, 5))
        >>> dropout(torch.randn(2, 5, 4), tokens, vocab_size=10).shape
        torch.Size([2, 5, 4])
    """

    @checked
    def __init__(self, p: Probability = 0.1) -> None:
        super().__init__()
        self.p = p

    def forward(self, x: Tensor, tokens: Tensor, vocab_size: int) -> Tensor:
        """Drops words in training mode.

        Args:
            x: Embeddings `[B, T, D]`.
            tokens: Tokens, int `[B, T]`.
            vocab_size: Number of tokens.

        Returns:
            The embeddings `[B, T, D]`.
        """
        if not self.training or not self.p:
            return x
        is_kept = torch.rand(vocab_size, device=x.device) >= self.p
        return x * (is_kept.to(x.dtype) / (1 - self.p))[tokens].unsqueeze(-1)
