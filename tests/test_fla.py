"""Functions with the names of flash-linear-attention: signatures, and recurrences from their formulas."""

import inspect
from importlib import import_module
from importlib.util import find_spec

import pytest
import torch

from fastweights import functional
from fastweights.adapters import fla
from fastweights.core.errors import InputError
from fastweights.testing.tolerance import error, tolerance

B, T, H, K, V = 2, 9, 2, 5, 3
EXACT = tolerance(torch.float64).forward
MODULES = {"linear_attn": "linear_attn", "gated_delta_rule": "gated_delta_rule", "gdn": "gated_delta_rule"}
MODULES |= {name: name for name in ("kda", "gla", "rwkv7")}
GPU_PARAMETERS = {"kwargs", "chunk_indices", "cp_context", "use_graph", "max_num_seqs"}
"""Parameters for kernels on GPUs, after all others."""
NAMES = sorted(name for name in vars(fla) if name.startswith(("chunk_", "fused_")))


@pytest.fixture
def x():
    q, k = torch.rand(2, B, T, H, K, dtype=torch.float64)
    v, S = torch.randn(B, T, 2 * H, V, dtype=torch.float64), torch.randn(B, 2 * H, K, V, dtype=torch.float64)
    g, beta = torch.randn(2, B, T, 2 * H, dtype=torch.float64)
    z, A_log, dt_bias = torch.rand(B, 1, H, K, dtype=torch.float64), *torch.randn(2, 2 * H, dtype=torch.float64)
    gk, a = torch.randn(B, T, 2 * H, K, dtype=torch.float64), torch.randn(B, T, H, K, dtype=torch.float64)
    gates = {"g": g, "gk": gk, "beta": beta, "A_log": A_log, "dt_bias": dt_bias}
    return {"q": q, "k": k, "v": v, "a": a / a.norm(dim=-1, keepdim=True), "S": S, "z": z, **gates}


def read(S, q):
    return torch.einsum("bhkv,bhk->bhv", S, q)


@pytest.mark.parametrize("with_state", [False, True])
def test_linear_attention_is_normalised_by_the_sum_of_keys(x, with_state):
    q, k, v, S, z = x["q"], x["k"], x["v"][:, :, :H], x["S"][:, :H], x["z"]
    initial_state = (S, z) if with_state else None
    o, last = fla.chunk_linear_attn(q, k, v, initial_state=initial_state, output_final_state=True)
    S, z = (S, z[:, 0]) if with_state else (torch.zeros_like(S), torch.zeros_like(z[:, 0]))
    for t in range(T):
        S, z = S + k[:, t, ..., None] * v[:, t, :, None], z + k[:, t]
        want = read(S, q[:, t]) / ((q[:, t] * z).sum(-1, keepdim=True) + fla.EPS * K**0.5)
        assert error(o[:, t], want) < EXACT
    assert error(last[0], S) < EXACT
    assert error(last[1], z[:, None]) < EXACT
    assert fla.chunk_linear_attn(q, k, v)[1] is None


def test_sums_over_keys_do_not_overflow_in_half_precision():
    q, k, v = torch.randn(3, 1, 6_000, 1, 32).abs().add(1).unbind()
    o, _ = fla.chunk_linear_attn(q.half(), k.half(), v.half())
    want, _ = fla.chunk_linear_attn(*(x.half().double() for x in (q, k, v)))
    assert o.dtype == torch.float16
    assert error(o, want) < tolerance(torch.float16).forward


def test_gates_are_computed_in_the_precision_of_the_inputs(x):
    q, k, v, beta = (x[name] for name in ("q", "k", "v", "beta"))
    gate, A = x["gk"], torch.randn(v.shape[2], dtype=torch.float64)
    o, _ = fla.chunk_kda(q, k, v, gate, beta, use_gate_in_kernel=True, A_log=A)
    g = -A.exp()[:, None] * torch.nn.functional.softplus(gate)
    assert error(o, fla.chunk_kda(q, k, v, g, beta)[0]) < EXACT


def test_reverse_reads_later_time_steps(x):
    q, k, v = x["q"][:1], x["k"][:1], x["v"][:1, :, :H]
    o, _ = fla.fused_recurrent_linear_attn(q, k, v, scale=1.0, reverse=True)
    assert error(o[:, 3], read(torch.einsum("bthk,bthv->bhkv", k[:, 3:], v[:, 3:]), q[:, 3])) < EXACT
    packed, _ = fla.fused_recurrent_linear_attn(q, k, v, scale=1.0, reverse=True, cu_seqlens=torch.tensor([0, 5, T]))
    assert error(packed[:, 3], read(torch.einsum("bthk,bthv->bhkv", k[:, 3:5], v[:, 3:5]), q[:, 3])) < EXACT


def test_gates_rates_heads_and_layouts_are_computed_inside(x):
    """Four heads of values, two heads of keys, decays and rates from raw inputs, and states with values first."""
    switches = {"use_gate_in_kernel": True, "A_log": x["A_log"], "dt_bias": x["dt_bias"], "state_v_first": True}
    switches |= {"use_beta_sigmoid_in_kernel": True, "allow_neg_eigval": True, "use_qk_l2norm_in_kernel": True}
    tensors = [x[name] for name in ("q", "k", "v", "g", "beta")]
    o, last = fla.chunk_gated_delta_rule(*tensors, 0.7, x["S"].mT, True, **switches)
    decay = torch.exp(-x["A_log"].exp() * torch.log1p(torch.exp(x["g"] + x["dt_bias"])))
    rate, S = 2 / (1 + torch.exp(-x["beta"])), x["S"]
    q, k = ((y / (y.square().sum(-1, keepdim=True) + 1e-6).sqrt())[:, :, [0, 0, 1, 1]] for y in (x["q"], x["k"]))
    for t in range(T):
        S = decay[:, t, :, None, None] * S
        S = S + k[:, t, ..., None] * (rate[:, t, :, None] * (x["v"][:, t] - read(S, k[:, t])))[:, :, None]
        assert error(o[:, t], 0.7 * read(S, q[:, t])) < tolerance(torch.float32).forward  # A_log is read in float32
    assert error(last, S.mT) < tolerance(torch.float32).forward


@pytest.mark.parametrize("lower_bound", [None, -5.0])
def test_decays_per_feature_are_computed_inside(x, lower_bound):
    """Like `test_gates_rates_heads_and_layouts_are_computed_inside`, with a decay per feature of the keys."""
    bias = torch.randn(2 * H * K, dtype=torch.float64)
    switches = {"use_gate_in_kernel": True, "use_beta_sigmoid_in_kernel": True, "lower_bound": lower_bound}
    tensors = [x[name] for name in ("q", "k", "v", "gk", "beta")]
    inside = {"initial_state": x["S"].mT, "state_v_first": True, "A_log": x["A_log"], "dt_bias": bias}
    o, _ = fla.chunk_kda(*tensors, output_final_state=True, **switches, **inside)
    raw, A = x["gk"] + bias.view(2 * H, K), x["A_log"].exp()[:, None]
    g = -A * torch.log1p(raw.exp()) if lower_bound is None else -5 / (1 + torch.exp(-A * raw))
    q, k = (y[:, :, [0, 0, 1, 1]] for y in (x["q"], x["k"]))
    want, _ = functional.kimi_delta_attention(q, k, x["v"], g, x["beta"].sigmoid(), initial_state=x["S"])
    assert error(o, want) < tolerance(torch.float32).forward  # A_log is read in float32
    recurrent, _ = fla.fused_recurrent_kda(*tensors, **switches, **inside)
    assert torch.equal(recurrent, o)


def test_reverse_of_gated_functions_equals_flipped_inputs(x):
    q, k, v, g = x["q"], x["k"], x["v"][:, :, :H], -x["gk"][:, :, :H].abs()
    o, last = fla.fused_recurrent_gla(q, k, v, g, output_final_state=True, reverse=True)
    want, whole = fla.chunk_gla(*(y.flip(1) for y in (q, k, v, g)), output_final_state=True)
    assert torch.equal(o, want.flip(1))
    assert torch.equal(last, whole)
    o, _ = fla.fused_mul_recurrent_rwkv7(q, g, k, v, x["a"], k, reverse=True)
    want, _ = fla.chunk_rwkv7(*(y.flip(1) for y in (q, g, k, v, -x["a"], x["a"] * k)))
    assert torch.equal(o, want.flip(1))


def test_rate_1_and_no_decay_are_defaults(x):
    q, k, v = x["q"], x["k"], x["v"][:, :, :H]
    one = torch.ones(B, T, H, dtype=torch.float64)
    want, _ = fla.chunk_delta_rule(q, k, v, one, use_qk_l2norm_in_kernel=True)
    for function in (fla.fused_recurrent_delta_rule, fla.fused_recurrent_gated_delta_rule):
        assert error(function(q, k, v, use_qk_l2norm_in_kernel=True)[0], want) < EXACT
    want, _ = fla.chunk_linear_attn(q, k, v, normalize=False)
    assert error(fla.fused_recurrent_gla(q, k, v)[0], want) < EXACT
    ours, last = fla.fused_recurrent_rwkv7(q, torch.zeros_like(k), k, v, k, torch.zeros_like(k))
    assert error(ours, want) < EXACT
    assert last.shape == (B, H, K, V)


def test_unsupported_arguments_are_rejected(x):
    q, k, v = x["q"], x["k"], x["v"]
    with pytest.raises(InputError, match="gk and gv must be None"):
        fla.fused_recurrent_gated_delta_rule(q, k, v, gk=q)
    with pytest.raises(InputError, match="gv must be None"):
        fla.fused_recurrent_gla(q, k, v, gv=q)
    with pytest.raises(InputError, match="return_intermediate_states must be False"):
        fla.chunk_kda(q, k, v, q, x["beta"], return_intermediate_states=True)
    with pytest.raises(InputError, match="A_log must be given with use_gate_in_kernel, or lower_bound"):
        fla.chunk_kda(q, k, v, q, x["beta"], use_gate_in_kernel=True)
    with pytest.raises(
        InputError, match="v must be a tensor whose heads are a multiple of the 2 heads of q, got 3 heads"
    ):
        fla.chunk_gated_delta_rule(q, k, torch.cat([v, v], 2)[:, :, :3], x["g"], x["beta"])
    states = {"initial_state": x["S"][:1], "cu_seqlens": torch.tensor([0, T])}
    with pytest.raises(InputError, match=r"reverse must be False if .*, got True"):
        fla.fused_recurrent_linear_attn(q[:1], k[:1], v[:1], reverse=True, **states)
    with pytest.raises(InputError, match="allow_neg_eigval must be False without use_beta_sigmoid_in_kernel"):
        fla.chunk_gated_delta_rule(q, k, v, x["g"], x["beta"], allow_neg_eigval=True)


@pytest.mark.skipif(not (find_spec("fla") and find_spec("triton")), reason="needs flash-linear-attention and triton")
@pytest.mark.filterwarnings("ignore")
class TestComparedWithFla:
    """With fla installed: its signatures and its own references."""

    @pytest.mark.parametrize("name", NAMES)
    def test_arguments_have_their_names_order_and_defaults(self, name):
        module = next((module for end, module in MODULES.items() if name.endswith(end)), "delta_rule")
        published = inspect.signature(getattr(import_module(f"fla.ops.{module}"), name)).parameters
        ours = [p for p in inspect.signature(getattr(fla, name)).parameters.values() if p.kind is not p.KEYWORD_ONLY]
        assert [p.name for p in ours] == [n for n in published if n not in GPU_PARAMETERS][: len(ours)]
        assert all(p.default == published[p.name].default for p in ours)
        additional = {p.name for p in inspect.signature(getattr(fla, name)).parameters.values()} - {
            p.name for p in ours
        }
        assert {*published} - {p.name for p in ours} <= GPU_PARAMETERS | additional

    def test_results_equal_those_of_fla(self, x):
        q, k, v = (x[name][:, :, :H].float() for name in ("q", "k", "v"))
        k = torch.nn.functional.normalize(k, dim=-1)
        g, beta = -x["g"][:, :, :H].float().abs(), x["beta"][:, :, :H].float().sigmoid()
        S, z = x["S"][:, :H].float(), x["z"].float()
        gk, a, b = (y[:, :, :H].float() for y in (-x["gk"].abs(), x["a"], x["q"] / K))
        linear = import_module("fla.ops.linear_attn.naive").naive_recurrent_linear_attn
        kda = import_module("fla.ops.kda.naive").naive_recurrent_kda
        gla = import_module("fla.ops.gla.naive").naive_recurrent_gla
        dplr = import_module("fla.ops.generalized_delta_rule.dplr.naive").dplr_recurrence
        o, last = dplr(*(y.transpose(1, 2) for y in (q, k, v, a, b, gk)), S)
        gated = import_module("fla.ops.gated_delta_rule.naive").naive_recurrent_gated_delta_rule
        pairs = [
            (fla.chunk_linear_attn(q, k, v, None, (S, z), True), linear(q, k, v, None, (S, z), True, True)),
            (
                fla.chunk_gated_delta_rule(q, k, v, g, beta, None, S, True),
                gated(q, k, v, beta, g, initial_state=S, output_final_state=True),
            ),
            (fla.chunk_kda(q, k, v, gk, beta, None, S, True), kda(q, k, v, gk, beta, None, S, True)),
            (fla.chunk_gla(q, k, v, gk, None, S, True), gla(q, k, v, gk, S, True)),
            (fla.chunk_rwkv7(q, gk, k, v, a, b, K**-0.5, S, True), (o.transpose(1, 2), last)),
        ]
        for ours, expected in pairs:
            for got, want in zip(*(torch.utils._pytree.tree_leaves(y) for y in (ours, expected)), strict=True):
                assert error(got, want) < tolerance(torch.float32).forward
