"""Dropout of whole words."""

import torch
from torch import Tensor, nn

from fastweights.core.arguments import Probability, checked


class WordDropout(nn.Module):
    """Sets the embeddings of words to 0, each with probability p, and divides the others by 1 - p, in training.

    A word is dropped wherever it occurs in a forward pass.

    Source: Gal and Ghahramani 2016; Merity, Keskar and Socher 2018, Sec. 4.3, "embedding dropout".

    Args:
        p: Probability of dropping a word, from 0 to below 1.
    """

    @checked
    def __init__(self, p: Probability = 0.1) -> None:
        super().__init__()
        self.p = p

    def forward(self, x: Tensor, tokens: Tensor, vocab_size: int) -> Tensor:
        """Embeddings x `[B, T, D]` of tokens int `[B, T]` -> the same shape."""
        if not self.training or not self.p:
            return x
        kept = torch.rand(vocab_size, device=x.device) >= self.p
        return x * (kept.to(x.dtype) / (1 - self.p))[tokens].unsqueeze(-1)
