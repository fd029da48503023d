"""Gated slot attention of flash-linear-attention: attention over a fixed number of slots."""

from typing import Annotated, NamedTuple

import torch
from torch import Tensor

from fastweights.adapters.fla.packed_scan import packed_scan
from fastweights.cell import Cell
from fastweights.core.autocast import at_least_float32
from fastweights.signature import RawKey, TensorSpec, Value

Pair = tuple[Tensor, Tensor]


class _Slots(NamedTuple):
    keys: Annotated[Tensor, TensorSpec("K M", "memory")]
    values: Annotated[Tensor, TensorSpec("M V", "memory")]


class _Inputs(NamedTuple):
    q: RawKey
    k: RawKey
    v: Value
    s: Annotated[Tensor, TensorSpec("M", "value")]
    decay: Annotated[Tensor, TensorSpec("M", "decay")]


def _gated_slots(state: _Slots, x: _Inputs) -> tuple[_Slots, Value]:
    """The cell gated-slot-attention with independent writes s, and any number of slots M."""
    keys = state.keys * x.decay + torch.outer(x.k, x.s)
    values = state.values * x.decay[:, None] + torch.outer(x.s, x.v)
    return _Slots(keys, values), values.mT @ (keys.mT @ x.q).softmax(-1)


CELL = Cell.from_function(_gated_slots)


def chunk_gsa(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    s: Tensor,
    g: Tensor | None = None,
    scale: float | Tensor | None = None,
    initial_state: Pair | None = None,
    output_final_state: bool = False,
    cu_seqlens: Tensor | None = None,
) -> tuple[Tensor, Pair | None]:
    """P <- P diag(exp(g)) + k s^T, Z <- diag(exp(g)) Z + s v^T, o = softmax(scale q P) Z.

    s and g are `[B, T, H, M]` for M slots. Without g the writes are a softmax of s over the time of the call. q may
    have more heads than the rest: several queries then read the same slots. A state is the pair of P `[N, H, K, M]`
    and Z `[N, H, M, V]`.

    Source: Zhang et al. 2024 (Gated Slot Attention).
    """
    queries = q.shape[2] // k.shape[2]
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    q = at_least_float32(q) * scale
    if g is None:
        s, g = _softmax_over_time(s)
    inputs = _Inputs(q, *(x.repeat_interleave(queries, 2) for x in (k, v, s, at_least_float32(g).exp())))
    state = None if initial_state is None else _Slots(*(x.repeat_interleave(queries, 1) for x in initial_state))
    o, last = packed_scan(CELL, inputs, state, None, cu_seqlens)
    return o.to(v.dtype), (last.keys[:, ::queries], last.values[:, ::queries]) if output_final_state else None


def chunk_abc(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    s: Tensor,
    initial_state: Pair | None = None,
    output_final_state: bool = False,
) -> tuple[Tensor, Pair | None]:
    """`chunk_gsa` without g: attention with bounded memory. With a state, the softmax starts again.

    Source: Peng et al. 2022 (ABC).
    """
    return chunk_gsa(q, k, v, s, None, None, initial_state, output_final_state)


def _softmax_over_time(s: Tensor) -> tuple[Tensor, Tensor]:
    """Writes and logarithms of decays that make every slot an average with weights exp(s)."""
    z = at_least_float32(s).logcumsumexp(1)
    return (s - z).exp(), torch.cat([z[:, :1], z[:, :-1]], 1) - z
