"""Softmax attention with a cache as its state."""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from fastweights.core.arguments import Size
from fastweights.core.errors import require
from fastweights.layers.base.angles import positions_to_angles
from fastweights.layers.base.attention import attention
from fastweights.layers.base.cell_layer import require_heads
from fastweights.layers.base.initialise import change_initial
from fastweights.layers.base.layer import Controls, Layer
from fastweights.layers.base.like import zeros
from fastweights.layers.base.window_cache import empty_cache, last, number_segments, still_valid, visible
from fastweights.state import register_state


@register_state
class AttentionCache(NamedTuple):
    """The last W keys and values, `[B, W, H, D / H]`, and whether each position is filled, bool `[B, W]`."""

    k: Tensor
    v: Tensor
    filled: Tensor


class SoftmaxAttention(Layer):
    """Causal softmax attention over a window: the Transformer baseline.

        y = softmax(q K^T / sqrt(d)) V

    The state is the cache of keys and values. Positions are rotary, so that only distances matter and a stream can have
    any length. With `use_rope=False` and `bias=True` it is `torch.nn.MultiheadAttention` with a causal mask, as in the
    Transformer of Irie et al. 2021 (code of the algorithmic tasks), where positions are added to the input.

    Source: Vaswani et al. 2017 (arXiv:1706.03762), Eq. 1; rotary positions: Su et al. 2021 (arXiv:2104.09864), Eq. 34.

    Can: accumulate.

    Args:
        d_model: Size D of the input and the output.
        num_heads: Number of heads. It must divide `d_model`.
        window_size: Number of time steps that a step attends to, including itself.
        use_rope: Whether keys and queries have rotary positions. Otherwise the layer ignores the order of the steps.
        bias: Whether the linear maps have biases, which start at 0.

    Raises:
        InputError: `num_heads` does not divide `d_model`, or the size of a head is odd with `use_rope`.

    Example:
        >>> layer = SoftmaxAttention(d_model=64, num_heads=4, window_size=128)
        >>> y, state = layer(torch.randn(2, 10, 64))
        >>> y.shape
        torch.Size([2, 10, 64])
    """

    def __init__(
        self, d_model: Size, num_heads: Size = 8, window_size: Size = 256, use_rope: bool = True, bias: bool = False
    ) -> None:
        super().__init__()
        require_heads(d_model, num_heads)
        even = not use_rope or d_model // num_heads % 2 == 0
        require(even, "d_model / heads", "even, since positions rotate pairs", d_model // num_heads)
        self.input_size = d_model
        self.num_heads, self.head_size = num_heads, d_model // num_heads
        self.window_size = window_size
        self.use_rope = use_rope
        self.projection = nn.Linear(d_model, 3 * d_model, bias=bias)
        self.output = nn.Linear(d_model, d_model, bias=bias)
        for linear in (self.projection, self.output) if bias else ():
            change_initial(linear, _without_bias)

    def run(
        self, x: Tensor, state: AttentionCache | None, reset: Tensor | None, lengths: Tensor | None, controls: Controls
    ) -> tuple[Tensor, AttentionCache]:
        """Runs the layer on checked inputs."""
        past = empty_cache(self.initial_state(x.shape[0])) if state is None else state
        q, k, v = self.projection(x).unflatten(-1, (3, self.num_heads, -1)).unbind(2)
        k, v = torch.cat([past.k, k], dim=1), torch.cat([past.v, v], dim=1)
        segments = number_segments(past.filled, reset, x.shape[1])
        q_heads, k_heads, v_heads = (part.transpose(1, 2) for part in (*self._rotated(q, k), v))
        mask = visible(segments, x.shape[1], self.window_size).unsqueeze(1)
        read = attention(q_heads, k_heads, v_heads, mask=mask)
        ends = None if lengths is None else past.k.shape[1] + lengths
        k, v = (last(part, self.window_size, ends) for part in (k, v))
        cache = AttentionCache(k, v, still_valid(segments, self.window_size, ends))
        return self.output(read.transpose(1, 2).flatten(2)), cache

    def initial_state(self, batch_size: int) -> AttentionCache:
        """Returns an empty cache."""
        size = batch_size, self.window_size
        # Two tensors, since an exported program would treat one tensor as a single input.
        k, v = (zeros(self, *size, self.num_heads, self.head_size) for _ in range(2))
        return AttentionCache(k, v, zeros(self, *size, dtype=torch.bool))

    def _rotated(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        """Queries and keys, rotated by their positions in the cache, computed at least in float32."""
        if not self.use_rope:
            return q, k
        dtype = torch.promote_types(k.dtype, torch.float32)
        positions = torch.arange(k.shape[1], device=k.device, dtype=dtype)
        angles = positions_to_angles(positions, k.shape[-1], dtype).unsqueeze(1)
        return _rotate(q, angles[-q.shape[1] :]), _rotate(k, angles)


def _without_bias(linear: nn.Linear) -> None:
    nn.init.zeros_(linear.bias)


def _rotate(x: Tensor, angles: Tensor) -> Tensor:
    first, second = x.chunk(2, dim=-1)
    cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
    return torch.cat([first * cos - second * sin, first * sin + second * cos], dim=-1)
