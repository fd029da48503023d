"""Positions in flash-linear-attention: rotary embeddings, and the shift by one token of RWKV."""

import torch
from torch import Tensor

from fastweights.core.autocast import at_least_float32
from fastweights.core.packing import starts


def rotary_embedding(
    x: Tensor,
    cos: Tensor,
    sin: Tensor,
    interleaved: bool = False,
    inplace: bool = False,
    seqlen_offsets: int | Tensor = 0,
    cu_seqlens: Tensor | None = None,
) -> Tensor:
    """Rotates the first features of x `[B, T, H, D]` by angles that grow with the position.

    Args:
        x: Queries or keys.
        cos: Cosines of the angles per position, `[P, R / 2]` for R rotated features.
        sin: Sines of the angles.
        interleaved: Whether a pair of features that rotate together is adjacent. Otherwise its members are R / 2 apart.
        inplace: Whether x is overwritten.
        seqlen_offsets: Position of the first token, a number or `[N]`. Positions before 0 count as 0.
        cu_seqlens: Boundaries of packed sequences, `[N + 1]`.
    """
    position = _positions(x, seqlen_offsets, cu_seqlens).clamp(min=0)
    c, s = (at_least_float32(table)[position][:, :, None] for table in (cos, sin))
    size = 2 * cos.shape[-1]
    rotated = at_least_float32(x[..., :size])
    a, b = (rotated[..., ::2], rotated[..., 1::2]) if interleaved else rotated.chunk(2, -1)
    pair = (a * c - b * s, a * s + b * c)
    y = torch.stack(pair, -1).flatten(-2) if interleaved else torch.cat(pair, -1)
    y = torch.cat([y.to(x.dtype), x[..., size:]], -1)
    return x.copy_(y) if inplace else y


def token_shift(
    x: Tensor, cu_seqlens: Tensor | None = None, cache: Tensor | None = None, output_cache: bool = False
) -> Tensor | tuple[Tensor, Tensor]:
    """The token before minus the token itself, for x `[B, T, D]`.

    Args:
        x: Tokens.
        cu_seqlens: Boundaries of packed sequences, `[N + 1]`.
        cache: The token in front of each sequence, `[N, 1, D]`; zeros if None.
        output_cache: Whether to return the last token of each sequence, too, `[N, 1, D]`.
    """
    N = len(x) if cu_seqlens is None else len(cu_seqlens) - 1
    first = x.new_zeros(N, x.shape[-1]) if cache is None else cache.reshape(N, -1).to(x.dtype)
    before = x.roll(1, 1)
    if cu_seqlens is None:
        before = torch.cat([first[:, None], before[:, 1:]], 1)
        last = x[:, -1:]
    else:
        start = starts(cu_seqlens, x.shape[1])[..., None]
        before = torch.where(start, first[_sequence(x, cu_seqlens)][None], before)
        last = x[0, cu_seqlens[1:] - 1][:, None]
    return (before - x, last) if output_cache else before - x


def _positions(x: Tensor, offsets: int | Tensor, cu_seqlens: Tensor | None) -> Tensor:
    """Position of every token in its sequence, `[B, T]`."""
    B, T = x.shape[:2]
    position = torch.arange(T, device=x.device).expand(B, T)
    if cu_seqlens is None:
        return position + (offsets[:, None] if isinstance(offsets, Tensor) else offsets)
    sequence = _sequence(x, cu_seqlens)
    return position - cu_seqlens[sequence] + (offsets[sequence] if isinstance(offsets, Tensor) else offsets)


def _sequence(x: Tensor, cu_seqlens: Tensor) -> Tensor:
    """Index of every token's sequence, `[T]`."""
    return torch.bucketize(torch.arange(x.shape[1], device=x.device), cu_seqlens[1:], right=True)
