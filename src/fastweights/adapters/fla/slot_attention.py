"""Gated slot attention of flash-linear-attention: attention over a fixed number of slots."""

from typing import Annotated, NamedTuple

import torch
from torch import Tensor

from fastweights.adapters.fla.packed_scan import packed_scan
from fastweights.cell import Cell
from fastweights.core.autocast import at_least_float32
from fastweights.core.errors import require
from fastweights.signature import RawKey, TensorSpec, Value

Pair = tuple[Tensor, Tensor]
AbcState = tuple[Tensor, Tensor, Tensor]


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
        s, g, _ = _softmax_over_time(s)
    inputs = _Inputs(q, *(x.repeat_interleave(queries, 2) for x in (k, v, s, at_least_float32(g).exp())))
    state = None if initial_state is None else _Slots(*(x.repeat_interleave(queries, 1) for x in initial_state))
    o, last = packed_scan(CELL, inputs, state, None, cu_seqlens)
    return o.to(v.dtype), (last.keys[:, ::queries], last.values[:, ::queries]) if output_final_state else None


def chunk_abc(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    s: Tensor,
    initial_state: AbcState | None = None,
    output_final_state: bool = False,
) -> tuple[Tensor, AbcState | None]:
    """Attention with bounded memory: a slot is an average over time, with weights exp(s).

        z <- log(exp(z) + exp(s))
        P <- P diag(exp(z' - z)) + k exp(s - z)^T, Z <- diag(exp(z' - z)) Z + exp(s - z) v^T, with z' before the step
        o = softmax(P^T q / sqrt(K)) Z

    A state is P `[B, H, K, M]`, Z `[B, H, M, V]` and z `[B, H, M]`. The original returns P and Z only, so that its next
    call starts the averages again.

    Source: Peng et al. 2022 (ABC, arXiv:2110.02488).
    """
    memories, sums = None, None
    if initial_state is not None:
        count = len(initial_state)
        require(count == 3, "initial_state", "the tensors P, Z and z", f"{count} tensors")
        memories, sums = initial_state[:2], initial_state[2]
    writes, decays, sums = _softmax_over_time(s, sums)
    o, last = chunk_gsa(q, k, v, writes, decays, None, memories, output_final_state)
    return o, None if last is None else (*last, sums)


def _softmax_over_time(s: Tensor, sums: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
    """Writes and decays that make a slot an average over time with weights exp(s).

    Args:
        s: Logarithms of weights, `[B, T, H, M]`.
        sums: Logarithms of the sums of all earlier weights, `[B, H, M]`. No earlier weights if None.

    Returns:
        Writes, logarithms of decays, and the logarithms of the sums after the last step.
    """
    z = at_least_float32(s).logcumsumexp(1)
    first = z[:, :1] if sums is None else sums[:, None]
    z = z if sums is None else torch.logaddexp(z, first)
    return (s - z).exp(), torch.cat([first, z[:, :-1]], 1) - z, z[:, -1]
