"""Blocks of SNAIL, each of which appends channels to its input."""

import torch
from torch import Tensor, nn

from fastweights.layers.base.attention import attention
from fastweights.layers.base.like import zeros
from fastweights.layers.base.window_cache import PaddedWindow, last, number_segments, still_valid, visible
from fastweights.layers.softmax_attention import AttentionCache


class DenseBlock(nn.Module):
    """[x_t, tanh(a) * sigmoid(b)], where [a, b] is linear in x_t and x_{t - dilation}."""

    def __init__(self, channels: int, dilation: int, filters: int) -> None:
        super().__init__()
        self.channels = channels
        self.dilation = dilation
        self.convolution = nn.Linear(2 * channels, 2 * filters)

    def forward(self, x: Tensor, tail: Tensor, reset: Tensor | None, lengths: Tensor | None) -> tuple[Tensor, Tensor]:
        """Returns the input with the new channels, and the last inputs, which the next call needs."""
        past = PaddedWindow(tail, x, reset, lengths)
        a, b = self.convolution(torch.cat([past.earlier(self.dilation), x], dim=-1)).chunk(2, dim=-1)
        return torch.cat([x, a.tanh() * b.sigmoid()], dim=-1), past.tail()

    def initial_state(self, batch_size: int) -> Tensor:
        """Returns the tail before the first step: zeros."""
        return zeros(self, batch_size, self.dilation, self.channels)


def dense_blocks(channels: int, length: int, filters: int) -> nn.ModuleList:
    """Returns ceil(log2 length) dense blocks with dilations 2, 4, 8, ..., which cover the last `length` steps."""
    count = (length - 1).bit_length()
    return nn.ModuleList(DenseBlock(channels + n * filters, 2 ** (n + 1), filters) for n in range(count))


class AttentionBlock(nn.Module):
    """[x_t, softmax(q_t K^T / sqrt(key_size)) V] over the last `window` steps."""

    def __init__(self, channels: int, key_size: int, value_size: int, window_size: int) -> None:
        super().__init__()
        self.key_size = key_size
        self.value_size = value_size
        self.window_size = window_size
        self.projection = nn.Linear(channels, 2 * key_size + value_size)

    def forward(
        self, x: Tensor, past: AttentionCache, reset: Tensor | None, lengths: Tensor | None
    ) -> tuple[Tensor, AttentionCache]:
        """Returns the input with the attention output appended, and the cache."""
        q, k, v = self.projection(x).split([self.key_size, self.key_size, self.value_size], dim=-1)
        k, v = torch.cat([past.k, k], dim=1), torch.cat([past.v, v], dim=1)
        segments = number_segments(past.filled, reset, x.shape[1])
        mask = visible(segments, x.shape[1], self.window_size)
        # With an axis for the single head, since the attention of ONNX needs one.
        q_k_v = q[:, None], k[:, None], v[:, None]
        read = attention(*q_k_v, mask[:, None])[:, 0]
        ends = None if lengths is None else past.k.shape[1] + lengths
        k, v = (last(part, self.window_size, ends) for part in (k, v))
        cache = AttentionCache(k, v, still_valid(segments, self.window_size, ends))
        return torch.cat([x, read], dim=-1), cache

    def initial_state(self, batch_size: int) -> AttentionCache:
        """Returns an empty cache."""
        k, v = (zeros(self, batch_size, self.window_size, size) for size in (self.key_size, self.value_size))
        return AttentionCache(k, v, zeros(self, batch_size, self.window_size, dtype=torch.bool))
