"""Memories of flash-linear-attention that decay at fixed or learned rates, without a delta rule."""

import torch
from torch import Tensor

from fastweights import functional
from fastweights.adapters.fla.memories import chunk_gla, turned
from fastweights.adapters.fla.packed_scan import packed_scan
from fastweights.adapters.transformers.replacement import in_heads
from fastweights.cell import Cell
from fastweights.core.autocast import at_least_float32
from fastweights.functional import OutputAndState

RECURRENCE = Cell.from_name("linear-recurrence")
RWKV6 = Cell.from_name("rwkv6")


def chunk_simple_gla(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    g: Tensor | None = None,
    g_gamma: Tensor | None = None,
    scale: float | Tensor | None = None,
    initial_state: Tensor | None = None,
    output_final_state: bool = False,
    state_v_first: bool = False,
    cu_seqlens: Tensor | None = None,
) -> OutputAndState:
    """S <- exp(g + g_gamma) S + k v^T, o = scale q S, with decays g `[B, T, H]` and constant ones g_gamma `[H]`.

    Source: Dao and Gu 2024 (Mamba-2); Sun et al. 2023 (RetNet).
    """
    decay = torch.zeros_like(at_least_float32(q[..., 0])) if g is None else at_least_float32(g)
    decay = decay if g_gamma is None else decay + g_gamma
    options = (scale, turned(initial_state, state_v_first), output_final_state, None, cu_seqlens)
    o, last = functional.simple_gla(q, k, v, decay, *options)
    return o, turned(last, state_v_first)


def chunk_retention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    scale: float | Tensor | None = None,
    initial_state: Tensor | None = None,
    output_final_state: bool = False,
    state_v_first: bool = False,
    cu_seqlens: Tensor | None = None,
) -> OutputAndState:
    """`chunk_simple_gla` with the constant decays 1 - 2^(-5 - h) of head h.

    Source: Sun et al. 2023 (RetNet).
    """
    heads = torch.arange(q.shape[2], dtype=torch.float32, device=q.device)
    g_gamma = (1 - 2.0 ** (-5 - heads)).log()
    options = (scale, initial_state, output_final_state, state_v_first, cu_seqlens)
    return chunk_simple_gla(q, k, v, None, g_gamma, *options)


def chunk_hgrn(
    x: Tensor,
    g: Tensor,
    initial_state: Tensor | None = None,
    output_final_state: bool = False,
    cu_seqlens: Tensor | None = None,
) -> OutputAndState:
    """h <- exp(g) h + x for x and g `[B, T, D]`; states are `[N, D]`.

    Source: Qin et al. 2023 (HGRN).
    """
    inputs = RECURRENCE.Inputs(in_heads(x), in_heads(at_least_float32(g).exp()))
    state = None if initial_state is None else RECURRENCE.State(in_heads(at_least_float32(initial_state)))
    y, last = packed_scan(RECURRENCE, inputs, state, None, cu_seqlens)
    return y.flatten(2).to(x.dtype), last.h.flatten(1) if output_final_state else None


def chunk_rwkv6(
    r: Tensor,
    k: Tensor,
    v: Tensor,
    w: Tensor,
    u: Tensor,
    scale: float | Tensor | None = None,
    initial_state: Tensor | None = None,
    output_final_state: bool = False,
    cu_seqlens: Tensor | None = None,
) -> OutputAndState:
    """o = scale r (S + (u k) v^T), S <- diag(exp(w)) S + k v^T, with a bonus u `[H, K]` for the newest association.

    Source: Peng et al. 2024 (RWKV-6).
    """
    r = at_least_float32(r) * (r.shape[-1] ** -0.5 if scale is None else scale)
    inputs = RWKV6.Inputs(r, k, v, at_least_float32(w).exp())
    state = None if initial_state is None else RWKV6.State(at_least_float32(initial_state).mT)
    y, last = packed_scan(RWKV6, inputs, state, RWKV6.Params(u), cu_seqlens)  # type: ignore[misc]
    return y.to(v.dtype), last.W.mT if output_final_state else None


def chunk_lightnet(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    scale: float | Tensor | None = None,
    initial_state: tuple[Tensor | None, Tensor | None] | None = None,
    output_final_state: bool = False,
    state_v_first: bool = False,
    cu_seqlens: Tensor | None = None,
) -> tuple[Tensor, tuple[Tensor | None, Tensor]]:
    """Gated linear attention whose keys are a softmax over time: z <- log(exp(z) + exp(k)), k' = exp(k - z).

    The decay is exp(z before - z). A state is the pair of S and z `[N, 1, H, K]`.

    Source: Qin et al. 2024 (LightNet), as read in flash-linear-attention, `ops/lightnet`.
    """
    S, z0 = (None, None) if initial_state is None else initial_state
    keys = at_least_float32(k)
    parts = (keys,) if cu_seqlens is None else keys.split(cu_seqlens.diff().tolist(), 1)
    starts = [None] * len(parts) if z0 is None else z0.to(keys.dtype).chunk(len(parts))
    z, g, last_z = map(list, zip(*map(_normalisers, parts, starts), strict=True))
    options = (scale, S, output_final_state, state_v_first, cu_seqlens)
    o, last = chunk_gla(q, (keys - torch.cat(z, 1)).exp().to(k.dtype), v, torch.cat(g, 1), *options)
    return o, (last, torch.cat(last_z))


def _normalisers(keys: Tensor, start: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """For a sequence `[B, T, H, K]`: logarithms of the sums of exp(keys), of the decays, and the last of the former."""
    first = torch.full_like(keys[:, :1], -torch.inf) if start is None else start
    z = torch.cat([first, keys], 1).logcumsumexp(1)
    # Without a state the first decay has no influence, and its logarithm would be -infinity.
    before = torch.cat([z[:, 1:2], z[:, 1:-1]], 1) if start is None else z[:, :-1]
    return z[:, 1:], before - z[:, 1:], z[:, -1:]
