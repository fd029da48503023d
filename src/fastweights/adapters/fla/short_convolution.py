"""The short causal convolution of flash-linear-attention.

Its state `[N, D, W]` holds the last W inputs of N sequences, the oldest first.
"""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.functional import conv1d, silu

from fastweights.core.autocast import at_least_float32


def causal_conv1d(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    residual: Tensor | None = None,
    initial_state: Tensor | None = None,
    output_final_state: bool = False,
    activation: str | None = None,
    cu_seqlens: Tensor | None = None,
) -> tuple[Tensor, Tensor | None]:
    """Filters every channel of x `[B, T, D]` with its weights `[D, W]`, over the last W time steps.

    Args:
        x: Inputs; axes behind the second count as one.
        weight: Filters.
        bias: Added to the output, `[D]`.
        residual: Added after the activation, with the shape of x.
        initial_state: The state before x; zeros if None.
        output_final_state: Whether to return the state after x.
        activation: "silu" or "swish"; None for no activation.
        cu_seqlens: Boundaries of sequences that are packed into one row, `[N + 1]`.

    Returns:
        The output, with the shape and dtype of x, and the state or None.
    """
    sequences = _sequences(x.flatten(2), initial_state, weight.shape[1], cu_seqlens)
    y = torch.cat([_filtered(sequence, weight, bias) for sequence in sequences], 1)
    y = y if activation is None else silu(y)
    y = y if residual is None else y + at_least_float32(residual.flatten(2))
    last = torch.cat([sequence[..., -weight.shape[1] :] for sequence in sequences]) if output_final_state else None
    return y.to(x.dtype).reshape(x.shape), last


def causal_conv1d_update(
    x: Tensor,
    cache: Tensor,
    residual: Tensor | None = None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    activation: str | None = None,
) -> tuple[Tensor, Tensor]:
    """`causal_conv1d` of one time step, x `[N, 1, D]`, `[1, N, D]` or `[N, D]`. The cache is changed in place."""
    step = x.reshape(len(cache), -1)
    cache.copy_(torch.cat([cache[..., 1:], step[..., None].to(cache.dtype)], -1))
    window = at_least_float32(cache)
    y = window.sum(-1) if weight is None else (window * at_least_float32(weight)).sum(-1)
    y = y if bias is None else y + bias
    y = y if activation is None else silu(y)
    y = y if residual is None else y + at_least_float32(residual.reshape(step.shape))
    return y.to(x.dtype).reshape(x.shape), cache


def _sequences(x: Tensor, state: Tensor | None, width: int, cu_seqlens: Tensor | None) -> Sequence[Tensor]:
    """The sequences `[B, D, W + T]` with their states in front; several of B = 1 if they are packed."""
    parts = (x,) if cu_seqlens is None else x.split(cu_seqlens.diff().tolist(), 1)
    before = x.new_zeros(len(x) * len(parts), x.shape[2], width) if state is None else state.to(x.dtype)
    return [torch.cat([past, part.mT], -1) for past, part in zip(before.chunk(len(parts)), parts, strict=True)]


def _filtered(sequence: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Outputs `[B, T, D]` of a sequence `[B, D, W + T]`."""
    inputs, kernel = at_least_float32(sequence[..., 1:]), at_least_float32(weight)
    offset = None if bias is None else at_least_float32(bias)
    if inputs.shape[-1] == kernel.shape[1]:
        # A sum of W products is several times as fast as PyTorch's convolution of a single step.
        y = (inputs * kernel).sum(-1)[:, None]
        return y if offset is None else y + offset
    return conv1d(inputs, kernel[:, None], offset, groups=len(kernel)).mT
