"""flash-linear-attention's names: its signatures, and its recurrences written out from the formulas."""

import inspect
from importlib import import_module
from importlib.util import find_spec

import pytest
import torch

from fastweights.adapters import fla
from fastweights.errors import InputError
from fastweights.testing.tolerance import error, tolerance

B, T, H, K, V = 2, 9, 2, 5, 3
EXACT = tolerance(torch.float64).forward
HOMES = {"linear_attn": "linear_attn", "gated_delta_rule": "gated_delta_rule", "gdn": "gated_delta_rule"}
NAMES = sorted(name for name in vars(fla) if name.startswith(("chunk_", "fused_")))


@pytest.fixture
def x():
    q, k = torch.rand(2, B, T, H, K, dtype=torch.float64)
    v, S = torch.randn(B, T, 2 * H, V, dtype=torch.float64), torch.randn(B, 2 * H, K, V, dtype=torch.float64)
    g, beta = torch.randn(2, B, T, 2 * H, dtype=torch.float64)
    z, A_log, dt_bias = torch.rand(B, 1, H, K, dtype=torch.float64), *torch.randn(2, 2 * H, dtype=torch.float64)
    return {"q": q, "k": k, "v": v, "g": g, "beta": beta, "S": S, "z": z, "A_log": A_log, "dt_bias": dt_bias}


def read(S, q):
    return torch.einsum("bhkv,bhk->bhv", S, q)


@pytest.mark.parametrize("begun", [False, True])
def test_linear_attention_is_weighted_by_its_sum(x, begun):
    q, k, v, S, z = x["q"], x["k"], x["v"][:, :, :H], x["S"][:, :H], x["z"]
    begin = (S, z) if begun else None
    o, last = fla.chunk_linear_attn(q, k, v, initial_state=begin, output_final_state=True)
    S, z = (S, z[:, 0]) if begun else (torch.zeros_like(S), torch.zeros_like(z[:, 0]))
    for t in range(T):
        S, z = S + k[:, t, ..., None] * v[:, t, :, None], z + k[:, t]
        want = read(S, q[:, t]) / ((q[:, t] * z).sum(-1, keepdim=True) + fla.EPS * K**0.5)
        assert error(o[:, t], want) < EXACT
    assert error(last[0], S) < EXACT
    assert error(last[1], z[:, None]) < EXACT
    assert fla.chunk_linear_attn(q, k, v)[1] is None


def test_reverse_reads_from_the_end(x):
    q, k, v = x["q"][:1], x["k"][:1], x["v"][:1, :, :H]
    o, _ = fla.fused_recurrent_linear_attn(q, k, v, scale=1.0, reverse=True)
    assert error(o[:, 3], read(torch.einsum("bthk,bthv->bhkv", k[:, 3:], v[:, 3:]), q[:, 3])) < EXACT
    packed, _ = fla.fused_recurrent_linear_attn(q, k, v, scale=1.0, reverse=True, cu_seqlens=torch.tensor([0, 5, T]))
    assert error(packed[:, 3], read(torch.einsum("bthk,bthv->bhkv", k[:, 3:5], v[:, 3:5]), q[:, 3])) < EXACT


def test_gates_rates_heads_and_layouts_are_made_inside(x):
    """Four heads of values over two of keys, decay and rate from what a network says, states with values first."""
    switches = {"use_gate_in_kernel": True, "A_log": x["A_log"], "dt_bias": x["dt_bias"], "state_v_first": True}
    switches |= {"use_beta_sigmoid_in_kernel": True, "allow_neg_eigval": True, "use_qk_l2norm_in_kernel": True}
    given = [x[name] for name in ("q", "k", "v", "g", "beta")]
    o, last = fla.chunk_gated_delta_rule(*given, 0.7, x["S"].mT, True, **switches)
    decay = torch.exp(-x["A_log"].exp() * torch.log1p(torch.exp(x["g"] + x["dt_bias"])))
    rate, S = 2 / (1 + torch.exp(-x["beta"])), x["S"]
    q, k = ((y / (y.square().sum(-1, keepdim=True) + 1e-6).sqrt())[:, :, [0, 0, 1, 1]] for y in (x["q"], x["k"]))
    for t in range(T):
        S = decay[:, t, :, None, None] * S
        S = S + k[:, t, ..., None] * (rate[:, t, :, None] * (x["v"][:, t] - read(S, k[:, t])))[:, :, None]
        assert error(o[:, t], 0.7 * read(S, q[:, t])) < tolerance(torch.float32).forward  # A_log is read in float32
    assert error(last, S.mT) < tolerance(torch.float32).forward


def test_rates_of_one_and_no_decay_are_defaults(x):
    q, k, v = x["q"], x["k"], x["v"][:, :, :H]
    one = torch.ones(B, T, H, dtype=torch.float64)
    want, _ = fla.chunk_delta_rule(q, k, v, one, use_qk_l2norm_in_kernel=True)
    for function in (fla.fused_recurrent_delta_rule, fla.fused_recurrent_gated_delta_rule):
        assert error(function(q, k, v, use_qk_l2norm_in_kernel=True)[0], want) < EXACT


def test_what_cannot_be_is_refused(x):
    q, k, v = x["q"], x["k"], x["v"]
    with pytest.raises(InputError, match="gk and gv must be None"):
        fla.fused_recurrent_gated_delta_rule(q, k, v, gk=q)
    with pytest.raises(InputError, match="allow_neg_eigval must be with use_beta_sigmoid_in_kernel"):
        fla.chunk_gated_delta_rule(q, k, v, x["g"], x["beta"], allow_neg_eigval=True)


@pytest.mark.skipif(not (find_spec("fla") and find_spec("triton")), reason="needs flash-linear-attention and triton")
@pytest.mark.filterwarnings("ignore")
class TestBesideFla:
    """Where fla is installed: its signatures and its own references."""

    @pytest.mark.parametrize("name", NAMES)
    def test_arguments_have_their_names_order_and_defaults(self, name):
        home = next((home for end, home in HOMES.items() if name.endswith(end)), "delta_rule")
        theirs = inspect.signature(getattr(import_module(f"fla.ops.{home}"), name)).parameters
        ours = [p for p in inspect.signature(getattr(fla, name)).parameters.values() if p.kind is not p.KEYWORD_ONLY]
        assert [p.name for p in ours] == [n for n in theirs if n not in ("kwargs", "chunk_indices", "cp_context")]
        assert all(p.default == theirs[p.name].default for p in ours)

    def test_numbers_are_theirs(self, x):
        q, k, v = (x[name][:, :, :H].float() for name in ("q", "k", "v"))
        k = torch.nn.functional.normalize(k, dim=-1)
        g, beta = -x["g"][:, :, :H].float().abs(), x["beta"][:, :, :H].float().sigmoid()
        S, z = x["S"][:, :H].float(), x["z"].float()
        linear = import_module("fla.ops.linear_attn.naive").naive_recurrent_linear_attn
        gated = import_module("fla.ops.gated_delta_rule.naive").naive_recurrent_gated_delta_rule
        pairs = [
            (fla.chunk_linear_attn(q, k, v, None, (S, z), True), linear(q, k, v, None, (S, z), True, True)),
            (
                fla.chunk_gated_delta_rule(q, k, v, g, beta, None, S, True),
                gated(q, k, v, beta, g, initial_state=S, output_final_state=True),
            ),
        ]
        for ours, theirs in pairs:
            for got, want in zip(*(torch.utils._pytree.tree_leaves(y) for y in (ours, theirs)), strict=True):
                assert error(got, want) < tolerance(torch.float32).forward
