"""SNAIL: temporal convolutions that gather, and attention that picks."""

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from fastweights.errors import require
from fastweights.layers._layer import Controls, Layer
from fastweights.layers._past import Padded, last, nothing, number_segments, still_valid, visible
from fastweights.layers.softmax_attention import AttentionCache
from fastweights.state import with_methods


@with_methods
class SNAILState(NamedTuple):
    """The last inputs of every dense block, `[B, dilation, C]`, and the last keys and values of the attention, `[B,
    window, K]` and `[B, window, V]`."""

    tails: tuple[Tensor, ...]
    cache: AttentionCache


class SNAIL(Layer):
    """z <- [z, tanh(A z) * sigmoid(B z)] with dilations 2, 4, 8, ..., y = W [z, softmax(q K^T / sqrt(K)) V]: SNAIL.

    A block of dilated causal convolutions of width 2, each of which adds `filters` channels, then an attention block
    that adds `value_size` more, then a linear map. Before the first step and after a reset the convolutions see zeros.
    The attention has no positions. The paper's looks at a whole episode; here at most at the last `window` steps.

    Source: Mishra et al. 2018, Fig. 2 and Sec. 3 (dense, TC and attention blocks); sizes: its few-shot network.

    Can: accumulate.

    Args:
        d_model: Size of the input and output.
        length: Number of steps that the convolutions span: ceil(log2 length) dense blocks.
        filters: Channels that a dense block adds.
        key_size: Size of keys and queries.
        value_size: Channels that the attention adds.
        window: Number of steps that the attention sees, the present one included.

    Raises:
        InputError: `length` is below 2, or another size below 1.
    """

    def __init__(
        self,
        d_model: int,
        length: int = 32,
        filters: int = 128,
        key_size: int = 256,
        value_size: int = 128,
        window: int = 256,
    ) -> None:
        super().__init__()
        require(length >= 2, "length", "at least 2", length)
        sizes = {"filters": filters, "key_size": key_size, "value_size": value_size, "window": window}
        for name, size in sizes.items():
            require(size >= 1, name, "at least 1", size)
        self.input_size = d_model
        self.dense = nn.ModuleList()
        channels = d_model
        for n in range((length - 1).bit_length()):
            self.dense.append(_DenseBlock(channels, 2 ** (n + 1), filters))
            channels += filters
        self.attention = _AttentionBlock(channels, key_size, value_size, window)
        self.output = nn.Linear(channels + value_size, d_model)

    def run(
        self, x: Tensor, state: SNAILState | None, reset: Tensor | None, lengths: Tensor | None, controls: Controls
    ) -> tuple[Tensor, SNAILState]:
        """What the layer does."""
        before = self.initial_state(len(x)) if state is None else state
        tails = []
        for block, tail in zip(self.dense, before.tails, strict=True):
            x, after = block(x, tail, reset, lengths)
            tails.append(after)
        x, cache = self.attention(x, nothing(before.cache) if state is None else before.cache, reset, lengths)
        return self.output(x), SNAILState(tuple(tails), cache)

    def initial_state(self, batch_size: int) -> SNAILState:
        """Zeros for the convolutions, an empty cache for the attention."""
        tails = tuple(block.initial_tail(batch_size) for block in self.dense)  # type: ignore[operator]
        return SNAILState(tails, self.attention.initial_cache(batch_size))


class _DenseBlock(nn.Module):
    """[x_t, tanh(a) * sigmoid(b)], where [a, b] is linear in x_t and x_{t - dilation}."""

    def __init__(self, channels: int, dilation: int, filters: int) -> None:
        super().__init__()
        self.channels = channels
        self.dilation = dilation
        self.convolution = nn.Linear(2 * channels, 2 * filters)

    def forward(self, x: Tensor, tail: Tensor, reset: Tensor | None, lengths: Tensor | None) -> tuple[Tensor, Tensor]:
        past = Padded(tail, x, reset, lengths)
        a, b = self.convolution(torch.cat([past.earlier(self.dilation), x], dim=-1)).chunk(2, dim=-1)
        return torch.cat([x, a.tanh() * b.sigmoid()], dim=-1), past.tail()

    def initial_tail(self, batch_size: int) -> Tensor:
        return self.convolution.weight.new_zeros(batch_size, self.dilation, self.channels)


class _AttentionBlock(nn.Module):
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
        q, k, v = self.projection(x).split([self.key_size, self.key_size, self.value_size], dim=-1)
        k, v = torch.cat([past.k, k], dim=1), torch.cat([past.v, v], dim=1)
        segments = number_segments(past.valid, reset, x.shape[1])
        read = scaled_dot_product_attention(q, k, v, attn_mask=visible(segments, x.shape[1], self.window))
        ends = None if lengths is None else past.k.shape[1] + lengths
        k, v = (last(part, self.window, ends) for part in (k, v))
        cache = AttentionCache(k, v, still_valid(segments, self.window, ends))
        return torch.cat([x, read], dim=-1), cache

    def initial_cache(self, batch_size: int) -> AttentionCache:
        zeros, places = self.projection.weight.new_zeros, (batch_size, self.window)
        k, v = zeros(*places, self.key_size), zeros(*places, self.value_size)
        return AttentionCache(k, v, zeros(places, dtype=torch.bool))
