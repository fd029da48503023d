"""Memories of flash-linear-attention 0.6 by their names, with their arguments, layouts and defaults.

`from fla.ops.delta_rule import chunk_delta_rule` becomes `from fastweights.adapters.fla import chunk_delta_rule`. The
chunked and the recurrent functions of a memory are one here: how it is computed follows from sizes and device. They run
on any device, in float32 and float64 too, and their gradients reach every input and the initial state.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import softplus

from fastweights import functional
from fastweights.adapters.transformers.replacement import at_least_float32
from fastweights.core.errors import require

EPS = 1e-10
Pair = tuple[Tensor, Tensor]


def chunk_linear_attn(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    scale: float | Tensor | None = None,
    initial_state: Tensor | Pair | None = None,
    output_final_state: bool = False,
    normalize: bool = True,
    cu_seqlens: Tensor | None = None,
) -> tuple[Tensor, Tensor | Pair | None]:
    """S <- S + k v^T, o = scale q S; with `normalize`, z <- z + k and o / (scale q . z + 1e-10).

    Then a state is a pair of S `[N, H, K, V]` and z `[N, 1, H, K]`; None or S alone begins with z = 0.

    Source: Katharopoulos et al. 2020, Eq. 18 to 20.
    """
    S, z = initial_state if isinstance(initial_state, tuple) else (initial_state, None)
    if not normalize:
        return functional.linear_attention(q, k, v, scale, S, output_final_state, None, cu_seqlens)
    # z is what a value of 1 would have written.
    v = torch.cat([v, torch.ones_like(v[..., :1])], -1)
    if S is not None:
        start = torch.zeros_like(S[..., :1]) if z is None else z[:, 0, ..., None]
        S = torch.cat([S, start], -1)
    # Half precision has no room for sums over all keys.
    o, last = functional.linear_attention(
        at_least_float32(q), at_least_float32(k), at_least_float32(v), scale, S, output_final_state, None, cu_seqlens
    )
    o = (o[..., :-1] / (o[..., -1:] + EPS)).to(q.dtype)
    return o, None if last is None else (last[..., :-1], last[..., -1][:, None])


fused_chunk_linear_attn = chunk_linear_attn


def fused_recurrent_linear_attn(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    scale: float | Tensor | None = None,
    initial_state: Tensor | Pair | None = None,
    output_final_state: bool = False,
    reverse: bool = False,
    normalize: bool = False,
    cu_seqlens: Tensor | None = None,
) -> tuple[Tensor, Tensor | Pair | None]:
    """`chunk_linear_attn` with another default; `reverse` reads from the last step to the first."""
    if not reverse:
        return chunk_linear_attn(q, k, v, scale, initial_state, output_final_state, normalize, cu_seqlens)
    return _reversed(chunk_linear_attn, (q, k, v), (scale, initial_state, output_final_state, normalize), cu_seqlens)


def fused_recurrent_delta_rule(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    beta: Tensor | None = None,
    scale: float | Tensor | None = None,
    initial_state: Tensor | None = None,
    output_final_state: bool = False,
    use_qk_l2norm_in_kernel: bool = False,
    cu_seqlens: Tensor | None = None,
) -> functional.OutputAndState:
    """S <- S + beta k (v - k S)^T, o = scale q S; beta is 1 if None.

    Source: Schlag et al. 2021, Eq. 24; Yang et al. 2024.
    """
    beta = torch.ones_like(q[..., 0]) if beta is None else beta
    options = (scale, initial_state, output_final_state, use_qk_l2norm_in_kernel)
    return functional.delta_rule(q, k, v, beta, *options, None, cu_seqlens)


def chunk_delta_rule(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    beta: Tensor,
    scale: float | Tensor | None = None,
    initial_state: Tensor | None = None,
    output_final_state: bool = False,
    use_qk_l2norm_in_kernel: bool = False,
    cu_seqlens: Tensor | None = None,
    cu_seqlens_cpu: Tensor | None = None,
) -> functional.OutputAndState:
    """`fused_recurrent_delta_rule`; a copy of `cu_seqlens` on the CPU is not needed."""
    given = (scale, initial_state, output_final_state, use_qk_l2norm_in_kernel)
    return fused_recurrent_delta_rule(q, k, v, beta, *given, cu_seqlens)


def chunk_gated_delta_rule(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    g: Tensor,
    beta: Tensor,
    scale: float | Tensor | None = None,
    initial_state: Tensor | None = None,
    output_final_state: bool = False,
    use_qk_l2norm_in_kernel: bool = False,
    use_beta_sigmoid_in_kernel: bool = False,
    allow_neg_eigval: bool = False,
    state_v_first: bool = False,
    cu_seqlens: Tensor | None = None,
    cu_seqlens_cpu: Tensor | None = None,
    *,
    use_gate_in_kernel: bool = False,
    A_log: Tensor | None = None,
    dt_bias: Tensor | None = None,
) -> functional.OutputAndState:
    """S <- exp(g) S + beta k (v - exp(g) k S)^T, o = scale q S.

    v, g and beta may have more heads than q and k: each of these then serves several. With `use_gate_in_kernel` the
    decay is -exp(A_log) softplus(g + dt_bias), with `use_beta_sigmoid_in_kernel` the rate is sigmoid(beta), twice that
    with `allow_neg_eigval`. States are `[N, H, K, V]`, `[N, H, V, K]` with `state_v_first`.

    Source: Yang et al. 2024 (Gated DeltaNet), Eq. 10.
    """
    if use_gate_in_kernel:
        require(isinstance(A_log, Tensor), "A_log", "given with use_gate_in_kernel", A_log)
        bias = 0 if dt_bias is None else dt_bias
        g = -at_least_float32(A_log).exp() * softplus(at_least_float32(g) + bias)  # type: ignore[arg-type]
    beta = _rate(beta, use_beta_sigmoid_in_kernel, allow_neg_eigval)
    options = (scale, initial_state, output_final_state, use_qk_l2norm_in_kernel)
    return _gated(
        functional.gated_delta_rule, (*for_every_value(q, k, v), v, g, beta), options, state_v_first, cu_seqlens
    )


chunk_gdn = chunk_gated_delta_rule


def fused_recurrent_gated_delta_rule(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    g: Tensor | None = None,
    gk: Tensor | None = None,
    gv: Tensor | None = None,
    beta: Tensor | None = None,
    scale: float | Tensor | None = None,
    initial_state: Tensor | None = None,
    output_final_state: bool = False,
    use_qk_l2norm_in_kernel: bool = False,
    use_gate_in_kernel: bool = False,
    A_log: Tensor | None = None,
    dt_bias: Tensor | None = None,
    use_beta_sigmoid_in_kernel: bool = False,
    allow_neg_eigval: bool = False,
    state_v_first: bool = False,
    cu_seqlens: Tensor | None = None,
) -> functional.OutputAndState:
    """`chunk_gated_delta_rule`; without g nothing decays, and beta is 1 if None.

    Raises:
        InputError: gk or gv is given, decays of single keys or values.
    """
    require(gk is None and gv is None, "gk and gv", "None", "one of them", "This memory decays as a whole, by g.")
    like = v[..., 0]
    return chunk_gated_delta_rule(
        q,
        k,
        v,
        torch.zeros_like(like) if g is None else g,
        torch.ones_like(like) if beta is None else beta,
        *(scale, initial_state, output_final_state, use_qk_l2norm_in_kernel),
        *(use_beta_sigmoid_in_kernel, allow_neg_eigval, state_v_first, cu_seqlens),
        use_gate_in_kernel=use_gate_in_kernel,
        A_log=A_log,
        dt_bias=dt_bias,
    )


fused_recurrent_gdn = fused_recurrent_gated_delta_rule


def chunk_kda(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    g: Tensor,
    beta: Tensor,
    scale: float | Tensor | None = None,
    initial_state: Tensor | None = None,
    output_final_state: bool = False,
    use_qk_l2norm_in_kernel: bool = False,
    use_gate_in_kernel: bool = False,
    use_beta_sigmoid_in_kernel: bool = False,
    allow_neg_eigval: bool = False,
    safe_gate: bool = False,
    lower_bound: float | None = None,
    disable_recompute: bool = False,
    return_intermediate_states: bool = False,
    state_v_first: bool = False,
    cu_seqlens: Tensor | None = None,
    cu_seqlens_cpu: Tensor | None = None,
    *,
    A_log: Tensor | None = None,
    dt_bias: Tensor | None = None,
) -> functional.OutputAndState:
    """S <- M + beta k (v - k M)^T with M = diag(exp(g)) S, o = scale q S: a decay for every feature of the keys.

    v, g `[B, T, HV, K]` and beta may have more heads than q and k, and rates and states are as in
    `chunk_gated_delta_rule`. With `use_gate_in_kernel` the decay is -exp(A_log) softplus(g + dt_bias), or with
    `lower_bound` that times sigmoid(exp(A_log) (g + dt_bias)), A_log `[HV]`, dt_bias `[HV * K]`. `safe_gate` and
    `disable_recompute` say how kernels there compute: they change nothing.

    Raises:
        InputError: `return_intermediate_states` is set, or A_log missing.

    Source: Kimi Team 2025 (Kimi Linear).
    """
    require(not return_intermediate_states, "return_intermediate_states", "False", True, "States between are not kept.")
    if use_gate_in_kernel:
        g = kda_decay(g, A_log, dt_bias, lower_bound)
    beta = _rate(beta, use_beta_sigmoid_in_kernel, allow_neg_eigval)
    options = (scale, initial_state, output_final_state, use_qk_l2norm_in_kernel)
    return _gated(
        functional.kimi_delta_attention, (*for_every_value(q, k, v), v, g, beta), options, state_v_first, cu_seqlens
    )


def fused_recurrent_kda(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    g: Tensor,
    beta: Tensor,
    A_log: Tensor | None = None,
    dt_bias: Tensor | None = None,
    scale: float | Tensor | None = None,
    initial_state: Tensor | None = None,
    output_final_state: bool = False,
    use_qk_l2norm_in_kernel: bool = False,
    use_gate_in_kernel: bool = False,
    use_beta_sigmoid_in_kernel: bool = False,
    allow_neg_eigval: bool = False,
    lower_bound: float | None = None,
    state_v_first: bool = False,
    cu_seqlens: Tensor | None = None,
) -> functional.OutputAndState:
    """`chunk_kda`, with its arguments in another order."""
    options = (scale, initial_state, output_final_state, use_qk_l2norm_in_kernel)
    gates = (use_gate_in_kernel, use_beta_sigmoid_in_kernel, allow_neg_eigval)
    switches = {"lower_bound": lower_bound, "state_v_first": state_v_first, "cu_seqlens": cu_seqlens}
    return chunk_kda(q, k, v, g, beta, *options, *gates, **switches, A_log=A_log, dt_bias=dt_bias)  # type: ignore[arg-type]


def chunk_gla(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    g: Tensor,
    scale: float | Tensor | None = None,
    initial_state: Tensor | None = None,
    output_final_state: bool = False,
    state_v_first: bool = False,
    cu_seqlens: Tensor | None = None,
    cu_seqlens_cpu: Tensor | None = None,
) -> functional.OutputAndState:
    """S <- diag(exp(g)) S + k v^T, o = scale q S, g `[B, T, H, K]`; HGRN2 calls it with k = 1 - exp(g).

    Source: Yang et al. 2024 (Gated Linear Attention Transformers); Qin et al. 2024 (HGRN2).
    """
    options = (scale, initial_state, output_final_state)
    return _gated(functional.gated_linear_attention, (q, k, v, g), options, state_v_first, cu_seqlens)


def fused_recurrent_gla(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    gk: Tensor | None = None,
    gv: Tensor | None = None,
    scale: float | Tensor | None = None,
    initial_state: Tensor | None = None,
    output_final_state: bool = False,
    reverse: bool = False,
    state_v_first: bool = False,
    cu_seqlens: Tensor | None = None,
) -> functional.OutputAndState:
    """`chunk_gla`; without gk nothing decays, and `reverse` reads from the last step to the first.

    Raises:
        InputError: gv is given, decays of values.
    """
    require(gv is None, "gv", "None", "decays of values", "This memory decays by features of its keys, gk.")
    inputs = (q, k, v, torch.zeros_like(k) if gk is None else gk)
    options = (scale, initial_state, output_final_state, state_v_first)
    return _reversed(chunk_gla, inputs, options, cu_seqlens) if reverse else chunk_gla(*inputs, *options, cu_seqlens)


def chunk_rwkv7(
    r: Tensor,
    w: Tensor,
    k: Tensor,
    v: Tensor,
    a: Tensor,
    b: Tensor,
    scale: float | Tensor | None = 1.0,
    initial_state: Tensor | None = None,
    output_final_state: bool = False,
    cu_seqlens: Tensor | None = None,
    cu_seqlens_cpu: Tensor | None = None,
    safe_gate: bool = False,
    chunk_size: int | None = None,
    disable_recompute: bool = False,
    *,
    lower_bound: float | None = None,
) -> functional.OutputAndState:
    """S <- diag(exp(w)) S + b (a S) + k v^T, o = scale r S.

    `safe_gate`, `chunk_size`, `disable_recompute` and `lower_bound` say how kernels there compute: they change nothing.

    Source: Peng et al. 2025 (RWKV-7).
    """
    return functional.rwkv7(r, w, k, v, a, b, scale, initial_state, output_final_state, None, cu_seqlens)


def fused_recurrent_rwkv7(
    r: Tensor,
    w: Tensor,
    k: Tensor,
    v: Tensor,
    a: Tensor,
    b: Tensor,
    scale: float | Tensor | None = None,
    initial_state: Tensor | None = None,
    output_final_state: bool = True,
    cu_seqlens: Tensor | None = None,
) -> functional.OutputAndState:
    """`chunk_rwkv7` with other defaults: `scale` is K^-0.5, and the state is returned."""
    return chunk_rwkv7(r, w, k, v, a, b, scale, initial_state, output_final_state, cu_seqlens)


def fused_mul_recurrent_rwkv7(
    r: Tensor,
    w: Tensor,
    k: Tensor,
    v: Tensor,
    kk: Tensor,
    a: Tensor,
    scale: float | Tensor | None = 1.0,
    initial_state: Tensor | None = None,
    output_final_state: bool = False,
    reverse: bool = False,
    cu_seqlens: Tensor | None = None,
) -> functional.OutputAndState:
    """`chunk_rwkv7` that removes -kk and writes kk * a there; `reverse` reads from the last step to the first."""
    inputs, options = (r, w, k, v, -kk, kk * a), (scale, initial_state, output_final_state)
    return (
        _reversed(chunk_rwkv7, inputs, options, cu_seqlens) if reverse else chunk_rwkv7(*inputs, *options, cu_seqlens)
    )


def _gated(
    function: Callable[..., functional.OutputAndState],
    given: tuple[Tensor, ...],
    rest: tuple[Any, ...],
    v_first: bool,
    cu_seqlens: Tensor | None,
) -> functional.OutputAndState:
    """A memory that fades, for states either way; the first of `rest` is the scale, the second the state."""
    scale, state, *switches = rest
    o, last = function(*given, scale, turned(state, v_first), *switches, None, cu_seqlens)
    return o, turned(last, v_first)


def _reversed(
    function: Callable[..., Any], inputs: tuple[Tensor, ...], options: tuple[Any, ...], cu_seqlens: Tensor | None
) -> Any:
    """Runs a memory from the last step to the first; the second and third of `options` are the states."""
    ends = None if cu_seqlens is None else cu_seqlens[-1] - cu_seqlens.flip(0)
    alone = options[1] is None and not options[2]
    require(ends is None or alone, "reverse", "without states where sequences are packed", "states")
    o, last = function(*(x.flip(1) for x in inputs), *options, cu_seqlens=ends)
    return o.flip(1), last


def kda_decay(
    g: Tensor, A_log: Tensor | None = None, dt_bias: Tensor | None = None, lower_bound: float | None = None
) -> Tensor:
    """Logarithms of decays `[B, T, HV, K]` from outputs of a network."""
    g = at_least_float32(g) if dt_bias is None else at_least_float32(g) + dt_bias.reshape(g.shape[-2:])
    if lower_bound is not None:
        return lower_bound * (g if A_log is None else at_least_float32(A_log).exp()[:, None] * g).sigmoid()
    require(isinstance(A_log, Tensor), "A_log", "given with use_gate_in_kernel, or lower_bound", A_log)
    return -at_least_float32(A_log).exp()[:, None] * softplus(g)  # type: ignore[arg-type]


def _rate(beta: Tensor, squashed: bool, doubled: bool) -> Tensor:
    require(squashed or not doubled, "allow_neg_eigval", "with use_beta_sigmoid_in_kernel", "it alone")
    return beta.sigmoid() * (2 if doubled else 1) if squashed else beta


def for_every_value(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """Repeats keys and queries for several heads of values."""
    num_heads, values = q.shape[2], v.shape[2]
    require(values % num_heads == 0, "v", f"of a multiple of the {num_heads} heads of q", f"{values} heads")
    served = values // num_heads
    return (q, k) if served == 1 else (q.repeat_interleave(served, dim=2), k.repeat_interleave(served, dim=2))


def turned(state: Tensor | None, v_first: bool) -> Tensor | None:
    return state.mT if v_first and state is not None else state
