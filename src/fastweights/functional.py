"""Memories as functions, with the argument names, layouts and defaults of flash-linear-attention.

q, k `[B, T, H, K]`, v `[B, T, H, V]`, beta and g `[B, T, H]`; states `[B, H, K, V]`, float32 unless the inputs are
float64. `scale` multiplies the queries, K^-0.5 if None. Unlike there, any device, float32 and float64 work, gradients
reach `initial_state`, and `reset`, bool `[B, T]`, begins a new sequence before a step.
"""

from collections.abc import Callable
from typing import Any

from torch import Tensor

from fastweights.cell import Cell, MemoryState
from fastweights.dispatch import scan
from fastweights.normalisers.l2 import l2

Result = tuple[Tensor, Tensor | None]


def linear_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    scale: float | None = None,
    initial_state: Tensor | None = None,
    output_final_state: bool = False,
    reset: Tensor | None = None,
) -> Result:
    """W <- W + v k^T, o = scale W q: the sum rule, without a normaliser.

    Source: Katharopoulos et al. 2020; Schlag et al. 2021, Eq. 17.
    """
    return _run("sum", (k, v), q, scale, initial_state, output_final_state, reset)


def delta_rule(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    beta: Tensor,
    scale: float | None = None,
    initial_state: Tensor | None = None,
    output_final_state: bool = False,
    use_qk_l2norm_in_kernel: bool = False,
    reset: Tensor | None = None,
) -> Result:
    """W <- W + beta (v - W k) k^T, o = scale W q.

    Source: Schlag et al. 2021, Eq. 24; Yang et al. 2024.
    """
    q, k = (l2(q), l2(k)) if use_qk_l2norm_in_kernel else (q, k)
    return _run("delta", (k, v, beta), q, scale, initial_state, output_final_state, reset)


def gated_delta_rule(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    g: Tensor,
    beta: Tensor,
    scale: float | None = None,
    initial_state: Tensor | None = None,
    output_final_state: bool = False,
    use_qk_l2norm_in_kernel: bool = False,
    reset: Tensor | None = None,
) -> Result:
    """W <- exp(g) W + beta (v - exp(g) W k) k^T, o = scale W q, with g <= 0 the logarithm of the decay.

    Source: Yang et al. 2024 (Gated DeltaNet), Eq. 10.
    """
    q, k = (l2(q), l2(k)) if use_qk_l2norm_in_kernel else (q, k)
    return _run("gated-delta", (k, v, g.exp(), beta), q, scale, initial_state, output_final_state, reset)


def _run(
    name: str,
    instructions: tuple[Tensor, ...],
    q: Tensor,
    scale: float | None,
    initial_state: Tensor | None,
    output_final_state: bool,
    reset: Tensor | None,
) -> Result:
    cell = Cell.named(name)
    inputs: Callable[..., Any] = cell.Inputs
    state = None if initial_state is None else MemoryState(initial_state.mT)
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    o, last = scan(cell, inputs(q * scale, *instructions), state, reset=reset)
    return o, last.W.mT if output_final_state else None
