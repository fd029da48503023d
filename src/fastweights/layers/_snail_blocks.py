"""What SNAIL is made of: each block keeps the channels that it is given and adds some."""

import torch
from torch import Tensor, nn

from fastweights.layers.base.attention import attention
from fastweights.layers.base.like import zeros
from fastweights.layers.base.window_cache import Padded, last, number_segments, still_valid, visible
from fastweights.layers.softmax_attention import AttentionCache


class DenseBlock(nn.Module):
    """[x_t, tanh(a) * sigmoid(b)], where [a, b] is linear in x_t and x_{t - dilation}."""

    def __init__(self, channels: int, dilation: int, filters: int) -> None:
        super().__init__()
        self.channels = channels
        self.dilation = dilation
        self.convolution = nn.Linear(2 * channels, 2 * filters)

    def forward(self, x: Tensor, tail: Tensor, reset: Tensor | None, lengths: Tensor | None) -> tuple[Tensor, Tensor]:
        """The channels with the new ones, and the inputs that the next call is to see."""
        past = Padded(tail, x, reset, lengths)
        a, b = self.convolution(torch.cat([past.earlier(self.dilation), x], dim=-1)).chunk(2, dim=-1)
        return torch.cat([x, a.tanh() * b.sigmoid()], dim=-1), past.tail()

    def initial_state(self, batch_size: int) -> Tensor:
        """Zeros."""
        return zeros(self, batch_size, self.dilation, self.channels)


def dense_blocks(channels: int, length: int, filters: int) -> nn.ModuleList:
    """What sees the last `length` steps: ceil(log2 length) dense blocks with the dilations 2, 4, 8, ..."""
    count = (length - 1).bit_length()
    return nn.ModuleList(DenseBlock(channels + n * filters, 2 ** (n + 1), filters) for n in range(count))


class AttentionBlock(nn.Module):
    """[x_t, softmax(q_t K^T / sqrt(key_size)) V] over the last `window` steps."""

    def __init__(self, channels: int, key_size: int, value_size: int, window: int) -> None:
        super().__init__()
        self.key_size = key_size
        self.value_size = value_size
        self.window = window
        self.projection = nn.Linear(channels, 2 * key_size + value_size)

    def forward(
        self, x: Tensor, past: AttentionCache, reset: Tensor | None, lengths: Tensor | None
    ) -> tuple[Tensor, AttentionCache]:
        """The channels with what was read, and the cache."""
        q, k, v = self.projection(x).split([self.key_size, self.key_size, self.value_size], dim=-1)
        k, v = torch.cat([past.k, k], dim=1), torch.cat([past.v, v], dim=1)
        segments = number_segments(past.filled, reset, x.shape[1])
        seen = visible(segments, x.shape[1], self.window)
        # With an axis for the one head: ONNX has no attention without.
        one = q[:, None], k[:, None], v[:, None]
        read = attention(*one, seen[:, None])[:, 0]
        ends = None if lengths is None else past.k.shape[1] + lengths
        k, v = (last(part, self.window, ends) for part in (k, v))
        cache = AttentionCache(k, v, still_valid(segments, self.window, ends))
        return torch.cat([x, read], dim=-1), cache

    def initial_state(self, batch_size: int) -> AttentionCache:
        """An empty cache."""
        k, v = (zeros(self, batch_size, self.window, size) for size in (self.key_size, self.value_size))
        return AttentionCache(k, v, zeros(self, batch_size, self.window, dtype=torch.bool))
