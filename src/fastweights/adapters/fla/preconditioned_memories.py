"""Delta rules of flash-linear-attention whose written keys are preconditioned by a running mean of squared keys."""

import math

import torch
from torch import Tensor

from fastweights.adapters.fla.gated_memories import chunk_hgrn
from fastweights.adapters.fla.memories import chunk_rwkv7, for_every_value
from fastweights.core.autocast import at_least_float32
from fastweights.normalisers.l2 import l2

OutputAndStates = tuple[Tensor, Tensor | None, Tensor | None]


def chunk_precond_gated_delta_rule(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    g_atk: Tensor,
    g: Tensor,
    beta_atk: Tensor,
    beta: Tensor,
    scale: float | Tensor | None = None,
    initial_state: Tensor | None = None,
    initial_A_state: Tensor | None = None,
    output_final_state: bool = False,
    use_qk_l2norm_in_kernel: bool = True,
    cu_seqlens: Tensor | None = None,
    x: float = 1.5,
    eps: float = 1e-6,
    log_atk_scale: Tensor | None = None,
) -> OutputAndStates:
    """`chunk_precond_kda` with one decay g `[B, T, H]` for all features of the keys."""
    decay = at_least_float32(g)[..., None].expand(*g.shape, k.shape[-1])
    options = (scale, initial_state, initial_A_state, output_final_state, use_qk_l2norm_in_kernel, cu_seqlens)
    return chunk_precond_kda(q, k, v, decay, g_atk, beta_atk, beta, *options, x, eps, log_atk_scale)


def chunk_precond_kda(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    g: Tensor,
    g_atk: Tensor,
    beta_atk: Tensor,
    beta: Tensor,
    scale: float | Tensor | None = None,
    initial_state: Tensor | None = None,
    initial_A_state: Tensor | None = None,
    output_final_state: bool = False,
    use_qk_l2norm_in_kernel: bool = True,
    cu_seqlens: Tensor | None = None,
    x: float = 1.5,
    eps: float = 1e-6,
    log_atk_scale: Tensor | None = None,
) -> OutputAndStates:
    """S <- M + beta k' (v - k M)^T with M = diag(exp(g)) S, o = scale q S.

    The written key k' = k x^(-s) has s = r / (1 + |r|), r = log(A + eps) - log_atk_scale, which is -0.2 if None. A is
    the running mean A <- exp(g_atk) A + beta_atk k^2. States are `[N, H, K, V]` and A `[N, H, K]`.

    Source: flash-linear-attention, `ops/precond_kda/naive.py`.
    """
    if use_qk_l2norm_in_kernel:
        q, k = (l2(at_least_float32(y)).to(y.dtype) for y in (q, k))
    keys = at_least_float32(k)
    squares, faded = beta_atk[..., None] * keys.square(), g_atk[..., None].expand(k.shape)
    before = None if initial_A_state is None else initial_A_state.flatten(1)
    A, A_last = chunk_hgrn(squares.flatten(2), faded.flatten(2), before, output_final_state, cu_seqlens)
    written = keys * _preconditioner(A.view_as(keys), x, eps, log_atk_scale)
    (q, k), (written, _) = for_every_value(q, keys, v), for_every_value(written, written, v)
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    decay, written = at_least_float32(g), written * beta[..., None]
    options = (scale, initial_state, output_final_state, cu_seqlens)
    o, last = chunk_rwkv7(q, decay, written, v, -(decay.exp() * k), written, *options)
    return o, last, None if A_last is None else A_last.unflatten(1, keys.shape[2:])


def _preconditioner(A: Tensor, x: float, eps: float, log_atk_scale: Tensor | None) -> Tensor:
    """Factors between 1 / x and x, small where the squares A `[B, T, H, K]` are large."""
    centre = -0.2 if log_atk_scale is None else at_least_float32(log_atk_scale).view(-1, 1)
    r = torch.log(A + eps) - centre
    return torch.exp(-math.log(x) * r / (1 + r.abs()))
