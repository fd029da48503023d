"""Relatives of the delta rule in flash-linear-attention, as calls of its functions with other arguments."""

import torch
from torch import Tensor

from fastweights.adapters.fla.memories import chunk_gated_delta_rule, chunk_rwkv7, for_every_value, turned
from fastweights.core.autocast import at_least_float32
from fastweights.functional import OutputAndState
from fastweights.normalisers.l2 import l2


def chunk_comba(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    p: Tensor,
    g: Tensor,
    beta: Tensor | None = None,
    scale: float | Tensor | None = None,
    initial_state: Tensor | None = None,
    output_final_state: bool = False,
    use_qk_l2norm_in_kernel: bool = False,
    cu_seqlens: Tensor | None = None,
) -> OutputAndState:
    """S <- exp(g) S + beta k (v - p S)^T, o = scale q S: the association to p is removed before the memory fades.

    v, g and beta may have more heads than q, k and p: each of these then serves several.

    Source: Hu et al. 2025 (Comba).
    """
    if use_qk_l2norm_in_kernel:
        q, k, p = (l2(at_least_float32(x)).to(x.dtype) for x in (q, k, p))
    (q, k), (p, _) = for_every_value(q, k, v), for_every_value(p, p, v)
    beta = torch.ones_like(v[..., 0]) if beta is None else beta
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    written = at_least_float32(k) * beta[..., None]
    w = at_least_float32(g)[..., None].expand(k.shape)
    options = (scale, initial_state, output_final_state, cu_seqlens)
    return chunk_rwkv7(q, w, written, v, -p, written, *options)


def chunk_gated_delta_product(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    g: Tensor | None,
    beta: Tensor,
    num_householder: int,
    scale: float | Tensor | None = None,
    initial_state: Tensor | None = None,
    output_final_state: bool = False,
    use_qk_l2norm_in_kernel: bool = False,
    cu_seqlens: Tensor | None = None,
) -> OutputAndState:
    """The gated delta rule with n = `num_householder` writes per token: k, v and beta are `[B, T n, H, ...]`.

    The memory fades before the first write of a token. The query reads it after the last one.

    Source: Siems et al. 2025 (DeltaProduct).
    """
    n = num_householder
    decay = torch.zeros_like(at_least_float32(q[..., 0])) if g is None else at_least_float32(g)
    decay = _spread(decay, n, 0)
    ends = None if cu_seqlens is None else cu_seqlens * n
    options = (scale, initial_state, output_final_state, use_qk_l2norm_in_kernel)
    o, last = chunk_gated_delta_rule(_spread(q, n, n - 1), k, v, decay, beta, *options, cu_seqlens=ends)
    return o[:, n - 1 :: n], last


def chunk_gdn2(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    g: Tensor,
    b: Tensor,
    w: Tensor,
    scale: float | Tensor | None = None,
    initial_state: Tensor | None = None,
    output_final_state: bool = False,
    use_qk_l2norm_in_kernel: bool = False,
    state_v_first: bool = False,
    cu_seqlens: Tensor | None = None,
) -> OutputAndState:
    """S <- M + k (w v - (b k) M)^T with M = diag(exp(g)) S, o = scale q S: gates of keys b and of values w.

    Source: flash-linear-attention, `ops/gdn2/naive.py`.
    """
    if use_qk_l2norm_in_kernel:
        q, k = (l2(at_least_float32(x)).to(x.dtype) for x in (q, k))
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    decay = at_least_float32(g)
    options = (scale, turned(initial_state, state_v_first), output_final_state, cu_seqlens)
    o, last = chunk_rwkv7(q, decay, k, w * v, -(decay.exp() * b * k), k, *options)
    return o, turned(last, state_v_first)


def _spread(x: Tensor, n: int, place: int) -> Tensor:
    """x `[B, T, ...]` as `[B, T n, ...]`: every step at one place of n, zeros at the others."""
    zeros = torch.zeros_like(x)
    return torch.stack([x if i == place else zeros for i in range(n)], 2).flatten(1, 2)
