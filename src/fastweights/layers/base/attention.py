"""Softmax attention, in the precision in which a CPU is fast."""

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from fastweights.core.autocast import autocasts, full_precision
from fastweights.core.padding import can_be_read

LONG = 512
"""Keys from which on PyTorch's way back is as fast in bfloat16 as in float32."""


def attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> Tensor:
    """softmax(q K^T / sqrt(d)) V: q `[..., T, d]`, k and v `[..., L, d]`, PyTorch's mask -> `[..., T, d]`.

    In half precision on a CPU, PyTorch's way back takes up to eight times as long as in float32. So it is computed in
    float32 there, but for bfloat16 and many keys; the result has the dtype that it would have had.

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
    """Whether `attention` in a half precision is to be computed in float32."""
    if q.dtype == torch.float64 or not can_be_read(q):
        return False
    return dtype == torch.float16 or (dtype == torch.bfloat16 and k.shape[-2] < LONG)
