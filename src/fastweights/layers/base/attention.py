"""Softmax attention in the fastest precision on a CPU."""

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from fastweights.core.autocast import autocasts, full_precision
from fastweights.core.padding import can_be_read

LONG = 512
"""Number of keys at which PyTorch's backward pass is as fast in bfloat16 as in float32."""


def attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> Tensor:
    """softmax(q K^T / sqrt(d)) V: q `[..., T, d]`, k and v `[..., L, d]`, PyTorch's mask -> `[..., T, d]`.

    In half precision on a CPU, PyTorch's backward pass takes up to eight times as long as in float32. So there the
    attention is computed in float32, except for bfloat16 with many keys. The dtype of the result does not change.

    Source: Vaswani et al. 2017, Eq. 1.
    """
    dtype = torch.get_autocast_dtype(q.device.type) if autocasts(q.device) else q.dtype
    if not _is_slow(q, k, dtype):
        return scaled_dot_product_attention(q, k, v, attn_mask=mask)
    if mask is not None and mask.is_floating_point():
        mask = mask.float()
    with full_precision(q.device):
        return scaled_dot_product_attention(q.float(), k.float(), v.float(), attn_mask=mask).to(dtype)


def _is_slow(q: Tensor, k: Tensor, dtype: torch.dtype) -> bool:
    """Whether attention in half precision is faster in float32."""
    if q.dtype == torch.float64 or not can_be_read(q):
        return False
    return dtype == torch.float16 or (dtype == torch.bfloat16 and k.shape[-2] < LONG)
