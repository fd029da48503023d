"""Fused reads across the rows, x[t] = S[t]^T p[t], from the operations for reads along the columns.

The gradient of p^T S q with respect to q is S^T p. So the backward pass of a scan that reads along the columns, with p
as the gradient of its y, computes x as the gradient of its queries. The backward pass of x is the same with the
gradient of x as the queries, and the gradient of p is their y.
"""

from typing import Any

import torch
from torch import Tensor

from fastweights.backends.chunkwise.fused_scan import ScanOperands

OPS = torch.ops.fastweights


class ScanAcross(torch.autograd.Function):
    """x `[B, T, H, K]` and the last S, from p `[B, T, H, V]` in place of the queries, differentiable once."""

    @staticmethod
    def forward(ctx: Any, *arguments: Any) -> tuple[Tensor, Tensor]:
        p, k, e, v, a, S, *form = arguments
        # Neither the starts nor the gradient of the queries depends on the queries, so any tensor serves.
        _, last, starts = OPS.chunk_scan(k, k, e, v, a, S, *form, True)
        # The gradient of the queries has their dtype. x is read by the rest of the step, so that it is not rounded.
        x, *_ = OPS.chunk_scan_backward(k.to(S.dtype), k, e, v, a, *form, starts, p, torch.zeros_like(S))
        ctx.save_for_backward(p, k, e, v, a, S, starts)
        ctx.form = form
        return x, last

    @staticmethod
    def backward(ctx: Any, d_x: Tensor, d_last: Tensor) -> tuple[Any, ...]:
        p, k, e, v, a, S, starts = ctx.saved_tensors
        q = d_x.contiguous()
        d_p, _, _ = OPS.chunk_scan(q, k, e, v, a, S, *ctx.form, False)
        _, *d, d_S = OPS.chunk_scan_backward(q, k, e, v, a, *ctx.form, starts, p, d_last)
        gradients = [None if x is None else d_x for x, d_x in zip((k, e, v, a), d, strict=True)]
        return d_p, *gradients, d_S, *[None] * len(ctx.form)


def scan_across(
    operands: ScanOperands, states: int, group: int, reads_after: bool, is_half: bool
) -> tuple[Tensor, Tensor]:
    """x and the last S. The `q` of the operands is p. It has the dtype of S."""
    tensors = (None if x is None else x.contiguous() for x in operands)
    x, last = ScanAcross.apply(*tensors, states, group, reads_after, is_half)
    return x, last
