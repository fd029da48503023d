"""The functions equal the recurrences in their docstrings, in the layout of flash-linear-attention."""

import itertools

import pytest
import torch

from fastweights import functional
from fastweights.cell import Cell
from fastweights.core import packing
from fastweights.core.errors import InputError
from fastweights.dispatch import scan
from fastweights.testing.tolerance import error, tolerance

B, T, H, K, V = 2, 19, 3, 6, 5
EXACT = tolerance(torch.float64).forward


@pytest.fixture
def x():
    q, k = torch.randn(2, B, T, H, K, dtype=torch.float64)
    v, S = torch.randn(B, T, H, V, dtype=torch.float64), torch.randn(B, H, K, V, dtype=torch.float64)
    beta, g = torch.rand(B, T, H, dtype=torch.float64), -torch.rand(B, T, H, dtype=torch.float64)
    a, gk = torch.randn(B, T, H, K, dtype=torch.float64), -torch.rand(B, T, H, K, dtype=torch.float64)
    a, b = a / a.norm(dim=-1, keepdim=True), torch.rand(B, T, H, K, dtype=torch.float64) / K
    return {
        "q": q,
        "k": k / k.norm(dim=-1, keepdim=True),
        "v": v,
        "beta": beta,
        "g": g,
        "gk": gk,
        "a": a,
        "b": b,
        "S": S,
    }


def loop(x, erase, decay):
    """S `[B, H, K, V]` step by step; `decay` names the logarithms of the decays."""
    S, outputs = x["S"], []
    for t in range(T):
        q, k, v = (x[name][:, t] for name in "qkv")
        beta = x["beta"][:, t, :, None]
        if decay:
            S = x[decay][:, t].reshape(B, H, -1, 1).exp() * S
        update = beta * (v - torch.einsum("bhkv,bhk->bhv", S, k)) if erase else v
        S = S + k[..., None] * update[..., None, :]
        outputs.append(torch.einsum("bhkv,bhk->bhv", S, q) * K**-0.5)
    return torch.stack(outputs, dim=1), S


@pytest.mark.parametrize(
    ("function", "names", "erase", "decay"),
    [
        (functional.linear_attention, "q k v", False, None),
        (functional.delta_rule, "q k v beta", True, None),
        (functional.gated_delta_rule, "q k v g beta", True, "g"),
        (functional.kimi_delta_attention, "q k v gk beta", True, "gk"),
        (functional.gated_linear_attention, "q k v gk", False, "gk"),
        (functional.simple_gla, "q k v g", False, "g"),
    ],
)
def test_function_equals_its_recurrence(x, function, names, erase, decay):
    arguments = [x[name] for name in names.split()]
    o, S = function(*arguments, initial_state=x["S"], output_final_state=True)
    want, last = loop(x, erase, decay)
    assert error(o, want) < EXACT
    assert error(S, last) < EXACT
    assert function(*arguments)[1] is None


def test_rwkv7_reads_the_removed_value_before_the_decay(x):
    q, gk, k, v, a, b = (x[name] for name in ("q", "gk", "k", "v", "a", "b"))
    o, S = functional.rwkv7(q, gk, k, v, a, b, 0.5, x["S"], output_final_state=True)
    want = x["S"]
    for t in range(T):
        removed = torch.einsum("bhkv,bhk->bhv", want, a[:, t])
        want = gk[:, t].exp()[..., None] * want
        want = want + b[:, t, ..., None] * removed[..., None, :] + k[:, t, ..., None] * v[:, t, :, None]
        assert error(o[:, t], 0.5 * torch.einsum("bhkv,bhk->bhv", want, q[:, t])) < EXACT
    assert error(S, want) < EXACT


@pytest.mark.parametrize("name", ["hgrn2", "rwkv7"])
def test_functions_equal_cells_of_the_library(x, name):
    """The keys of HGRN2 are 1 - decay; RWKV-7 removes along a direction of length 1."""
    q, decay, rate = x["q"], x["gk"].exp(), x["b"]
    if name == "hgrn2":
        inputs, o = (q, x["v"], decay), functional.gated_linear_attention(q, 1 - decay, x["v"], x["gk"], 1.0)[0]
    else:
        inputs = (q, x["k"], x["v"], x["a"], decay, rate)
        o, _ = functional.rwkv7(q, x["gk"], x["k"], x["v"], -x["a"], rate * x["a"])
    cell = Cell.from_name(name)
    assert error(o, scan(cell, cell.Inputs(*inputs))[0]) < EXACT


@pytest.mark.parametrize("function", [functional.delta_rule, functional.kimi_delta_attention])
def test_keys_are_normalised_on_request(x, function):
    longer = 3 * x["k"]
    rest = (x["beta"],) if function is functional.delta_rule else (x["gk"], x["beta"])
    o, _ = function(x["q"], longer, x["v"], *rest, use_qk_l2norm_in_kernel=True)
    unit = x["q"] / x["q"].norm(dim=-1, keepdim=True)
    want, _ = function(unit, x["k"], x["v"], *rest)
    assert error(o, want) < tolerance(torch.float32).forward  # l2 has an epsilon of 1e-6


CASES = [
    (functional.linear_attention, "q k v"),
    (functional.delta_rule, "q k v beta"),
    (functional.gated_delta_rule, "q k v g beta"),
    (functional.kimi_delta_attention, "q k v gk beta"),
    (functional.gated_linear_attention, "q k v gk"),
    (functional.simple_gla, "q k v g"),
    (functional.rwkv7, "q gk k v a b"),
]


@pytest.mark.parametrize(("function", "names"), CASES)
def test_torch_compile_gives_one_graph(x, function, names):
    inputs = [x[name] for name in names.split()]
    compiled, _ = torch.compile(function, fullgraph=True, backend="eager")(*inputs)
    assert error(compiled, function(*inputs)[0]) < EXACT


@pytest.mark.parametrize("most_padding", [1, 4])
@pytest.mark.parametrize(("function", "names"), CASES)
def test_packed_sequences_are_independent(x, function, names, most_padding, monkeypatch):
    """With and without states, outputs and gradients, for one scan of all sequences and for scans by length."""
    monkeypatch.setattr(packing, "MOST_PADDING", most_padding)
    arguments, ends = [x[name][:1].clone().requires_grad_() for name in names.split()], [0, 7, 7, 8, T]
    S = torch.randn(len(ends) - 1, H, K, V, dtype=torch.float64)
    cu_seqlens = torch.tensor(ends)
    o, last = function(*arguments, initial_state=S, output_final_state=True, cu_seqlens=cu_seqlens)
    without_states, no_state = function(*arguments, cu_seqlens=cu_seqlens)
    pieces = [(a, b, S[i : i + 1]) for i, (a, b) in enumerate(itertools.pairwise(ends)) if a < b]
    for initial, got in ((True, o), (False, without_states)):
        parts = [
            function(*(y[:, a:b] for y in arguments), initial_state=s if initial else None, output_final_state=True)
            for a, b, s in pieces
        ]
        want = torch.cat([part for part, _ in parts], 1)
        assert error(got, want) < EXACT
        direction = torch.randn_like(want)
        for one, other in zip(*(torch.autograd.grad(y, arguments, direction) for y in (got, want)), strict=True):
            assert error(one, other) < tolerance(torch.float64).gradient
        if initial:
            assert error(last[[0, 2, 3]], torch.cat([part for _, part in parts])) < EXACT
            assert torch.equal(last[1], S[1]), "a sequence without time steps does not change its state"
    assert no_state is None


@pytest.mark.parametrize(
    ("cu_seqlens", "message"),
    [
        (torch.tensor([0, 5]), r"cu_seqlens must be ascending from 0 to T=19, got \[0, 5\]"),
        (torch.tensor([0, 9, 3, T]), "cu_seqlens must be ascending"),
        (torch.tensor([0.0, T]), "cu_seqlens must be int64 or int32"),
        (torch.tensor(T), r"cu_seqlens must be \[N \+ 1\]"),
        ([0, T], r"cu_seqlens must be a tensor, got list\. Try torch.tensor"),
    ],
)
def test_invalid_cu_seqlens_are_rejected(x, cu_seqlens, message):
    with pytest.raises(InputError, match=message):
        functional.delta_rule(*(x[name][:1] for name in ("q", "k", "v", "beta")), cu_seqlens=cu_seqlens)


def test_short_sequences_are_not_padded_to_a_long_one(monkeypatch):
    lengths, numbers_of_steps = [1000] + 99 * [1], []
    scan = functional.scan

    def count_steps(cell, inputs, *rest, **options):
        numbers_of_steps.append(inputs[0].shape[:2].numel())
        return scan(cell, inputs, *rest, **options)

    monkeypatch.setattr(functional, "scan", count_steps)
    cu_seqlens = torch.tensor([0, *itertools.accumulate(lengths)])
    q, k, v = torch.randn(3, 1, sum(lengths), 1, 4).unbind()
    functional.delta_rule(q, k, v, torch.rand(1, sum(lengths), 1), output_final_state=True, cu_seqlens=cu_seqlens)
    assert sum(numbers_of_steps) <= 2 * sum(lengths)


@pytest.mark.parametrize("name", ["initial_state", "state_out"])
def test_error_names_a_state_of_the_wrong_shape(x, name):
    inputs = [x[n] for n in ("q", "k", "v", "beta")]
    with pytest.raises(InputError, match=rf"{name} must be \[N, H, K, V\] = .*, got \[1, 2, 3, 4\]"):
        functional.delta_rule(*inputs, **{name: torch.zeros(1, 2, 3, 4)})


def test_half_precision_is_rounded_once(x):
    """The scale is not in half precision, either."""
    half = [x[name].bfloat16() for name in ("q", "k", "v", "g", "beta")]
    o, S = functional.gated_delta_rule(*half, scale=0.3, output_final_state=True)
    want, last = functional.gated_delta_rule(*(y.double() for y in half), scale=0.3, output_final_state=True)
    assert o.dtype == torch.bfloat16
    assert S.dtype == torch.float32
    assert error(o, want) < tolerance(torch.bfloat16).forward
    assert error(S, last) < tolerance(torch.float32).forward
