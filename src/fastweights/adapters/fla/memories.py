"""Memories of flash-linear-attention 0.6 by their names, with their arguments, layouts and defaults.

Replace `from fla.ops.delta_rule import chunk_delta_rule` by
`from fastweights.adapters.fla import chunk_delta_rule`. The chunked and the recurrent function of a memory are the same
here: sizes and device determine how it is computed. The functions run on any device, also in float32 and float64, and
gradients reach all inputs and the initial state.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import softplus

from fastweights import functional
from fastweights.core.autocast import at_least_float32
from fastweights.core.docstrings import shares
from fastweights.core.errors import require

EPS = 1e-10
"""The smallest normaliser of linear attention, as in flash-linear-attention."""
Pair = tuple[Tensor, Tensor]

SHARED = """
Args:
    q: Queries `[B, T, H, K]`.
    r: Queries `[B, T, H, K]`.
    k: Keys `[B, T, H, K]`.
    v: Values `[B, T, H, V]`.
    g: Logarithm of the decay, at most 0: `[B, T, H]`.
    gk: Logarithm of the decay of every key feature, `[B, T, H, K]`. None: no decay.
    gv: Logarithm of the decay of every value feature. It must be None.
    w: Logarithm of the decay of every key feature, at most 0: `[B, T, H, K]`.
    a: Keys of the values to remove, `[B, T, H, K]`.
    b: Keys under which they are removed, `[B, T, H, K]`.
    beta: Rates of the writes, `[B, T, H]`.
    scale: Factor on the queries: a number, or a tensor `[]` or `[H]`. None: `K**-0.5`.
    initial_state: Initial state `[N, H, K, V]`. None: zeros.
    output_final_state: Whether the final state is returned.
    reverse: Whether the sequence is read from the last time step to the first.
    use_qk_l2norm_in_kernel: Whether queries and keys are normalised to length 1.
    use_gate_in_kernel: Whether g is an output of a network, from which the decay is computed with `A_log` and
        `dt_bias`.
    use_beta_sigmoid_in_kernel: Whether the rate is sigmoid(beta) instead of beta.
    allow_neg_eigval: Whether the rate is 2 sigmoid(beta); only with `use_beta_sigmoid_in_kernel`.
    A_log: Logarithm of the rate of decay, `[H]`; only with `use_gate_in_kernel`.
    dt_bias: Bias that is added to g, `[H]`; only with `use_gate_in_kernel`. None: no bias.
    state_v_first: Whether states are `[N, H, V, K]` instead of `[N, H, K, V]`.
    cu_seqlens: Boundaries of N packed sequences, int `[N + 1]`, for a batch of one. None: N = B sequences.
    cu_seqlens_cpu: Copy of `cu_seqlens` on the CPU; ignored.
    safe_gate: Option of the original kernel; ignored.
    chunk_size: Option of the original kernel; ignored.
    disable_recompute: Option of the original kernel; ignored.
    lower_bound: Option of the original kernel; ignored.

Returns:
    The outputs o `[B, T, H, V]`, and the final state `[N, H, K, V]`, or None without `output_final_state`.
"""
"""Descriptions of the arguments that the functions share."""


@shares(SHARED)
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
    """Linear attention, with or without a normaliser.

        S <- S + k v^T
        z <- z + k
        o = scale q S / (scale q . z + 10^-10)

    Without `normalize`, o = scale q S.

    Source: Katharopoulos et al. 2020 (arXiv:2006.16236), Eqs. 18 to 20.

    Args:
        initial_state: Initial state `[N, H, K, V]`. With `normalize` also a pair of S `[N, H, K, V]` and z `[N, 1, H,
            K]`; S alone begins with z = 0. None: zeros.
        normalize: Whether outputs are normalised.

    Returns:
        The outputs o `[B, T, H, V]`, and the final state, a pair with `normalize`, or None without
        `output_final_state`.
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


@shares(SHARED)
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
    """Linear attention, by default without a normaliser: see `chunk_linear_attn`.

    Args:
        initial_state: Initial state, as in `chunk_linear_attn`.
        normalize: Whether outputs are normalised.
    """
    if not reverse:
        return chunk_linear_attn(q, k, v, scale, initial_state, output_final_state, normalize, cu_seqlens)
    return _reversed(chunk_linear_attn, (q, k, v), (scale, initial_state, output_final_state, normalize), cu_seqlens)


@shares(SHARED)
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
    """Delta rule.

        S <- S + beta k (v - k S)^T
        o = scale q S

    Source: Schlag et al. 2021 (arXiv:2102.11174), Eq. 24; Yang et al. 2024 (arXiv:2406.06484).

    Args:
        beta: Rates of the writes, `[B, T, H]`. None: 1.
    """
    beta = torch.ones_like(q[..., 0]) if beta is None else beta
    options = (scale, initial_state, output_final_state, use_qk_l2norm_in_kernel)
    return functional.delta_rule(q, k, v, beta, *options, None, cu_seqlens)


@shares(SHARED)
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
    """Delta rule: see `fused_recurrent_delta_rule`."""
    options = (scale, initial_state, output_final_state, use_qk_l2norm_in_kernel)
    return fused_recurrent_delta_rule(q, k, v, beta, *options, cu_seqlens)


@shares(SHARED)
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
    """Gated delta rule, with one decay per head.

        M = exp(g) S
        S <- M + beta k (v - k M)^T
        o = scale q S

    v, g and beta may have a multiple of the heads of q and k. Each head of q and k then serves several heads of v. With
    `use_gate_in_kernel` the logarithm of the decay is -exp(A_log) softplus(g + dt_bias).

    Source: Yang et al. 2024 (Gated DeltaNet, arXiv:2412.06464), Eq. 10.

    Raises:
        InputError: an option does not fit, such as `use_gate_in_kernel` without `A_log`.
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


@shares(SHARED)
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
    """Gated delta rule: see `chunk_gated_delta_rule`.

    Args:
        g: Logarithm of the decay, at most 0: `[B, T, H]`. None: no decay.
        gk: Logarithm of the decay of every key feature. It must be None.
        beta: Rates of the writes, `[B, T, H]`. None: 1.

    Raises:
        InputError: gk or gv is not None.
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


@shares(SHARED)
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
    """Kimi Delta Attention (KDA): gated delta rule with one decay per key feature.

        M = diag(exp(g)) S
        S <- M + beta k (v - k M)^T
        o = scale q S

    v, g and beta may have a multiple HV of the heads of q and k. With `use_gate_in_kernel` the logarithm of the decay
    is -exp(A_log) softplus(g + dt_bias), or with `lower_bound` lower_bound sigmoid(exp(A_log) (g + dt_bias)).

    Source: Kimi Team 2025 (Kimi Linear, arXiv:2510.26692).

    Args:
        g: Logarithm of the decay of every key feature, at most 0: `[B, T, HV, K]`.
        lower_bound: Lower bound of the logarithm of the decay. None: no bound.
        return_intermediate_states: It must be False, since states between chunks are not stored.
        A_log: Logarithm of the rate of decay, `[HV]`; only with `use_gate_in_kernel`.
        dt_bias: Bias that is added to g, `[HV * K]`; only with `use_gate_in_kernel`. None: no bias.

    Raises:
        InputError: `return_intermediate_states` is True, or `A_log` is missing.
    """
    require(not return_intermediate_states, "return_intermediate_states", "False", True, "States between are not kept.")
    if use_gate_in_kernel:
        g = kda_decay(g, A_log, dt_bias, lower_bound)
    beta = _rate(beta, use_beta_sigmoid_in_kernel, allow_neg_eigval)
    options = (scale, initial_state, output_final_state, use_qk_l2norm_in_kernel)
    return _gated(
        functional.kimi_delta_attention, (*for_every_value(q, k, v), v, g, beta), options, state_v_first, cu_seqlens
    )


@shares(SHARED)
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
    """Kimi Delta Attention (KDA): see `chunk_kda`.

    Args:
        g: Logarithm of the decay of every key feature, at most 0: `[B, T, HV, K]`.
        lower_bound: Lower bound of the logarithm of the decay. None: no bound.
        A_log: Logarithm of the rate of decay, `[HV]`; only with `use_gate_in_kernel`.
        dt_bias: Bias that is added to g, `[HV * K]`; only with `use_gate_in_kernel`. None: no bias.
    """
    options = (scale, initial_state, output_final_state, use_qk_l2norm_in_kernel)
    gates = (use_gate_in_kernel, use_beta_sigmoid_in_kernel, allow_neg_eigval)
    switches = {"lower_bound": lower_bound, "state_v_first": state_v_first, "cu_seqlens": cu_seqlens}
    return chunk_kda(q, k, v, g, beta, *options, *gates, **switches, A_log=A_log, dt_bias=dt_bias)  # type: ignore[arg-type]


@shares(SHARED)
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
    """Gated linear attention (GLA), with one decay per key feature.

        S <- diag(exp(g)) S + k v^T
        o = scale q S

    With k = 1 - exp(g) it is HGRN2.

    Source: Yang et al. 2024 (Gated Linear Attention Transformers, arXiv:2312.06635); Qin et al. 2024 (HGRN2,
    arXiv:2404.07904).

    Args:
        g: Logarithm of the decay of every key feature, at most 0: `[B, T, H, K]`.
    """
    options = (scale, initial_state, output_final_state)
    return _gated(functional.gated_linear_attention, (q, k, v, g), options, state_v_first, cu_seqlens)


@shares(SHARED)
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
    """Gated linear attention (GLA): see `chunk_gla`.

    Raises:
        InputError: gv is not None.
    """
    require(gv is None, "gv", "None", "decays of values", "This memory decays by features of its keys, gk.")
    inputs = (q, k, v, torch.zeros_like(k) if gk is None else gk)
    options = (scale, initial_state, output_final_state, state_v_first)
    return _reversed(chunk_gla, inputs, options, cu_seqlens) if reverse else chunk_gla(*inputs, *options, cu_seqlens)


@shares(SHARED)
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
    """RWKV-7: a decay per key feature, and a separate key for removal.

        S <- diag(exp(w)) S + b (a S) + k v^T
        o = scale r S

    Source: Peng et al. 2025 (RWKV-7, arXiv:2503.14456).
    """
    return functional.rwkv7(r, w, k, v, a, b, scale, initial_state, output_final_state, None, cu_seqlens)


@shares(SHARED)
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
    """RWKV-7, with the final state by default and the scale `K**-0.5`: see `chunk_rwkv7`."""
    return chunk_rwkv7(r, w, k, v, a, b, scale, initial_state, output_final_state, cu_seqlens)


@shares(SHARED)
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
    """RWKV-7 with the removal in the form of the original model: see `chunk_rwkv7` with a = -kk and b = kk * a.

    Args:
        kk: Normalised keys of the values to remove, `[B, T, H, K]`.
        a: Rates of the removal, `[B, T, H, K]`.
    """
    inputs, options = (r, w, k, v, -kk, kk * a), (scale, initial_state, output_final_state)
    return (
        _reversed(chunk_rwkv7, inputs, options, cu_seqlens) if reverse else chunk_rwkv7(*inputs, *options, cu_seqlens)
    )


def _gated(
    function: Callable[..., functional.OutputAndState],
    inputs: tuple[Tensor, ...],
    rest: tuple[Any, ...],
    v_first: bool,
    cu_seqlens: Tensor | None,
) -> functional.OutputAndState:
    """A memory that fades, for states either way; the first of `rest` is the scale, the second the state."""
    scale, state, *switches = rest
    o, last = function(*inputs, scale, turned(state, v_first), *switches, None, cu_seqlens)
    return o, turned(last, v_first)


def _reversed(
    function: Callable[..., Any], inputs: tuple[Tensor, ...], options: tuple[Any, ...], cu_seqlens: Tensor | None
) -> Any:
    """Runs a memory from the last step to the first; the second and third of `options` are the states."""
    ends = None if cu_seqlens is None else cu_seqlens[-1] - cu_seqlens.flip(0)
    alone = options[1] is None and not options[2]
    require(ends is None or alone, "reverse", "False if sequences are packed and states are used", True)
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
    require(squashed or not doubled, "allow_neg_eigval", "False without use_beta_sigmoid_in_kernel", True)
    return beta.sigmoid() * (2 if doubled else 1) if squashed else beta


def for_every_value(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """Repeats keys and queries for several heads of values."""
    num_heads, values = q.shape[2], v.shape[2]
    require(
        values % num_heads == 0,
        "v",
        f"a tensor whose heads are a multiple of the {num_heads} heads of q",
        f"{values} heads",
    )
    served = values // num_heads
    return (q, k) if served == 1 else (q.repeat_interleave(served, dim=2), k.repeat_interleave(served, dim=2))


def turned(state: Tensor | None, v_first: bool) -> Tensor | None:
    """States `[N, H, K, V]` as `[N, H, V, K]` or back, if `v_first`."""
    return state.mT if v_first and state is not None else state
