"""Softmax attention with a cache as its state."""

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from fastweights.errors import require
from fastweights.layers._layer import Controls, Layer
from fastweights.layers._past import last, nothing, number_segments, still_valid, visible
from fastweights.layers._programmed import require_heads
from fastweights.state import with_methods


@with_methods
class AttentionCache(NamedTuple):
    """The last keys and values, `[B, window, H, D / H]`, and whether each is there, bool `[B, window]`."""

    k: Tensor
    v: Tensor
    valid: Tensor


class SoftmaxAttention(Layer):
    """y = softmax(q K^T / sqrt(d)) V over the last `window` steps: the baseline without a bounded memory.

    Its state is the cache of keys and values. Positions enter as rotations, so that only distances count and a
    stream can go on for ever.

    Source: Vaswani et al. 2017, Eq. 1; rotations: Su et al. 2021, Eq. 34.

    Can: accumulate.
    """

    def __init__(self, d_model: int, heads: int = 8, window: int = 256) -> None:
        super().__init__()
        require_heads(d_model, heads)
        require(d_model // heads % 2 == 0, "d_model / heads", "even, since positions rotate pairs", d_model // heads)
        require(window >= 1, "window", "at least 1", window)
        self.input_size = d_model
        self.heads = heads
        self.window = window
        self.projection = nn.Linear(d_model, 3 * d_model, bias=False)
        self.output = nn.Linear(d_model, d_model, bias=False)

    def run(
        self, x: Tensor, state: AttentionCache | None, reset: Tensor | None, lengths: Tensor | None, controls: Controls
    ) -> tuple[Tensor, AttentionCache]:
        """What the layer does."""
        past = nothing(self.initial_state(len(x))) if state is None else state
        q, k, v = self.projection(x).unflatten(-1, (3, self.heads, -1)).unbind(2)
        k, v = torch.cat([past.k, k], dim=1), torch.cat([past.v, v], dim=1)
        segments = number_segments(past.valid, reset, x.shape[1])
        angles = _angles(k)
        turned = _rotate(q, angles[-x.shape[1] :]), _rotate(k, angles)
        q_heads, k_heads, v_heads = (part.transpose(1, 2) for part in (*turned, v))
        mask = visible(segments, x.shape[1], self.window).unsqueeze(1)
        read = scaled_dot_product_attention(q_heads, k_heads, v_heads, attn_mask=mask)
        ends = None if lengths is None else past.k.shape[1] + lengths
        k, v = (last(part, self.window, ends) for part in (k, v))
        cache = AttentionCache(k, v, still_valid(segments, self.window, ends))
        return self.output(read.transpose(1, 2).flatten(2)), cache

    def initial_state(self, batch_size: int) -> AttentionCache:
        """An empty cache."""
        weight = self.output.weight
        zeros = weight.new_zeros(batch_size, self.window, self.heads, weight.shape[0] // self.heads)
        return AttentionCache(zeros, zeros, torch.zeros(zeros.shape[:2], dtype=torch.bool, device=weight.device))


def _angles(k: Tensor) -> Tensor:
    """Angles of rotation for every step and pair, `[L, 1, d / 2]`, at least in float32."""
    dtype = torch.promote_types(k.dtype, torch.float32)
    pairs = torch.arange(0, k.shape[-1], 2, device=k.device, dtype=dtype) / k.shape[-1]
    return torch.outer(torch.arange(k.shape[1], device=k.device, dtype=dtype), 10000.0**-pairs).unsqueeze(1)


def _rotate(x: Tensor, angles: Tensor) -> Tensor:
    first, second = x.chunk(2, dim=-1)
    cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
    return torch.cat([first * cos - second * sin, first * sin + second * cos], dim=-1)
