"""Functions of flash-linear-attention 0.6 by their names, with their arguments, layouts and defaults.

`from fla.ops.delta_rule import chunk_delta_rule` becomes `from fastweights.adapters.fla import chunk_delta_rule`. The
chunked and the recurrent functions of a memory are one here: how it is computed follows from sizes and device. They run
on any device, in float32 and float64 too, and their gradients reach every input and the initial state.
"""

import torch
from torch import Tensor
from torch.nn.functional import softplus

from fastweights import functional
from fastweights.errors import require

EPS = 1e-10
Pair = tuple[Tensor, Tensor]


def chunk_linear_attn(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    scale: float | None = None,
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
    o, last = functional.linear_attention(q, k, v, scale, S, output_final_state, None, cu_seqlens)
    o = o[..., :-1] / (o[..., -1:] + EPS)
    return o, None if last is None else (last[..., :-1], last[..., -1][:, None])


fused_chunk_linear_attn = chunk_linear_attn


def fused_recurrent_linear_attn(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    scale: float | None = None,
    initial_state: Tensor | Pair | None = None,
    output_final_state: bool = False,
    reverse: bool = False,
    normalize: bool = False,
    cu_seqlens: Tensor | None = None,
) -> tuple[Tensor, Tensor | Pair | None]:
    """`chunk_linear_attn` with another default; `reverse` reads from the last step to the first."""
    if not reverse:
        return chunk_linear_attn(q, k, v, scale, initial_state, output_final_state, normalize, cu_seqlens)
    ends = None if cu_seqlens is None else cu_seqlens[-1] - cu_seqlens.flip(0)
    states = initial_state, output_final_state
    require(ends is None or states == (None, False), "reverse", "without states where sequences are packed", states)
    given = q.flip(1), k.flip(1), v.flip(1), scale
    o, last = chunk_linear_attn(*given, *states, normalize, ends)
    return o.flip(1), last


def fused_recurrent_delta_rule(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    beta: Tensor | None = None,
    scale: float | None = None,
    initial_state: Tensor | None = None,
    output_final_state: bool = False,
    use_qk_l2norm_in_kernel: bool = False,
    cu_seqlens: Tensor | None = None,
) -> functional.Result:
    """S <- S + beta k (v - k S)^T, o = scale q S; beta is 1 if None.

    Source: Schlag et al. 2021, Eq. 24; Yang et al. 2024.
    """
    beta = torch.ones_like(q[..., 0]) if beta is None else beta
    given = (scale, initial_state, output_final_state, use_qk_l2norm_in_kernel)
    return functional.delta_rule(q, k, v, beta, *given, None, cu_seqlens)


def chunk_delta_rule(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    beta: Tensor,
    scale: float | None = None,
    initial_state: Tensor | None = None,
    output_final_state: bool = False,
    use_qk_l2norm_in_kernel: bool = False,
    cu_seqlens: Tensor | None = None,
    cu_seqlens_cpu: Tensor | None = None,
) -> functional.Result:
    """`fused_recurrent_delta_rule`; a copy of `cu_seqlens` on the CPU is not needed."""
    given = (scale, initial_state, output_final_state, use_qk_l2norm_in_kernel)
    return fused_recurrent_delta_rule(q, k, v, beta, *given, cu_seqlens)


def chunk_gated_delta_rule(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    g: Tensor,
    beta: Tensor,
    scale: float | None = None,
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
) -> functional.Result:
    """S <- exp(g) S + beta k (v - exp(g) k S)^T, o = scale q S.

    v, g and beta may have more heads than q and k: each of these then serves several. With `use_gate_in_kernel` the
    decay is -exp(A_log) softplus(g + dt_bias), with `use_beta_sigmoid_in_kernel` the rate is sigmoid(beta), twice that
    with `allow_neg_eigval`. States are `[N, H, K, V]`, `[N, H, V, K]` with `state_v_first`.

    Source: Yang et al. 2024 (Gated DeltaNet), Eq. 10.
    """
    fits = use_beta_sigmoid_in_kernel or not allow_neg_eigval
    require(fits, "allow_neg_eigval", "with use_beta_sigmoid_in_kernel", "it alone")
    if use_gate_in_kernel:
        require(isinstance(A_log, Tensor), "A_log", "given with use_gate_in_kernel", A_log)
        bias = 0 if dt_bias is None else dt_bias
        g = -A_log.float().exp() * softplus(g.float() + bias)  # type: ignore[union-attr]
    if use_beta_sigmoid_in_kernel:
        beta = beta.sigmoid() * (2 if allow_neg_eigval else 1)
    served = v.shape[2] // q.shape[2]
    q, k = (x.repeat_interleave(served, dim=2) if served > 1 else x for x in (q, k))
    state = initial_state.mT if state_v_first and initial_state is not None else initial_state
    given = (scale, state, output_final_state, use_qk_l2norm_in_kernel)
    o, last = functional.gated_delta_rule(q, k, v, g, beta, *given, None, cu_seqlens)
    return o, last.mT if state_v_first and last is not None else last


chunk_gdn = chunk_gated_delta_rule


def fused_recurrent_gated_delta_rule(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    g: Tensor | None = None,
    gk: Tensor | None = None,
    gv: Tensor | None = None,
    beta: Tensor | None = None,
    scale: float | None = None,
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
) -> functional.Result:
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
