"""The memory of MesaNet in flash-linear-attention: ridge regression over time."""

from functools import cache
from typing import Annotated, Any, NamedTuple

import torch
from torch import Tensor

from fastweights.adapters.fla.packed_scan import packed_scan
from fastweights.cell import Cell
from fastweights.cells.mesa import solve
from fastweights.core.autocast import at_least_float32
from fastweights.core.traced_constant import traced_constant
from fastweights.normalisers.l2 import l2
from fastweights.signature import Decay, Matrix, Rate, RawKey, TensorSpec, Value

OutputAndStates = tuple[Tensor, Tensor | None, Tensor | None]


class _State(NamedTuple):
    G: Annotated[Tensor, TensorSpec("K K", "gram")]
    W: Matrix


class _Inputs(NamedTuple):
    q: RawKey
    k: RawKey
    v: Value
    decay: Decay
    beta: Rate


class _Params(NamedTuple):
    ridge: Annotated[Tensor, TensorSpec("K", "gain")]


@traced_constant
@cache
def _cell(steps: int) -> Cell:
    def mesa_net(state: _State, x: _Inputs, params: _Params) -> tuple[_State, Value]:
        """The cell mesa, with the ridge itself as its parameter."""
        G = x.decay * state.G + x.beta * torch.outer(x.k, x.k)
        W = x.decay * state.W + x.beta * torch.outer(x.v, x.k)
        return _State(G, W), W @ solve(G, params.ridge, x.q, steps)

    return Cell.from_function(mesa_net)


def chunk_mesa_net(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    g: Tensor,
    beta: Tensor,
    lamb: Tensor,
    h_kk_init: Tensor | None = None,
    h_kv_init: Tensor | None = None,
    output_final_state: bool = False,
    max_CG_iteration: int = 30,
    use_qk_l2norm_in_kernel: bool = False,
    cu_seqlens: Tensor | None = None,
) -> OutputAndStates:
    """G <- exp(g) G + beta k k^T, S <- exp(g) S + beta k v^T, o = S^T (G + diag(lamb))^-1 q, with lamb `[H, K]`.

    The system is solved by at most `max_CG_iteration` iterations of conjugate gradients, and at most K. Unlike in
    flash-linear-attention they are preconditioned by the diagonal.

    Source: von Oswald et al. 2025 (MesaNet).
    """
    if use_qk_l2norm_in_kernel:
        q, k = (l2(at_least_float32(x)).to(x.dtype) for x in (q, k))
    cell = _cell(min(max_CG_iteration, q.shape[-1]))
    inputs = _Inputs(q, k, v, at_least_float32(g).exp(), beta)
    state: Any = None
    if h_kk_init is not None and h_kv_init is not None:
        state = _State(at_least_float32(h_kk_init), at_least_float32(h_kv_init).mT)
    o, last = packed_scan(cell, inputs, state, _Params(lamb), cu_seqlens)
    return o.to(q.dtype), *((last.G, last.W.mT) if output_final_state else (None, None))


def mesa_net_decoding_one_step(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    g: Tensor,
    lamb: Tensor,
    beta: Tensor,
    prev_h_kk: Tensor,
    prev_h_kv: Tensor,
    max_CG_iteration: int = 30,
) -> OutputAndStates:
    """One step of `chunk_mesa_net`, with inputs `[N, H, ...]`."""
    q, k, v, g, beta = (x[:, None] for x in (q, k, v, g, beta))
    o, G, S = chunk_mesa_net(q, k, v, g, beta, lamb, prev_h_kk, prev_h_kv, True, max_CG_iteration)
    return o[:, 0], G, S
