"""The functions against the recurrences that their docstrings state, in the layout of flash-linear-attention."""

import pytest
import torch

from fastweights import functional
from fastweights.testing.tolerance import error, tolerance

B, T, H, K, V = 2, 19, 3, 6, 5
EXACT = tolerance(torch.float64).forward


@pytest.fixture
def x():
    q, k = torch.randn(2, B, T, H, K, dtype=torch.float64)
    v, S = torch.randn(B, T, H, V, dtype=torch.float64), torch.randn(B, H, K, V, dtype=torch.float64)
    beta, g = torch.rand(B, T, H, dtype=torch.float64), -torch.rand(B, T, H, dtype=torch.float64)
    return {"q": q, "k": k / k.norm(dim=-1, keepdim=True), "v": v, "beta": beta, "g": g, "S": S}


def loop(x, erase, decay):
    """S `[B, H, K, V]` step by step."""
    S, outputs = x["S"], []
    for t in range(T):
        q, k, v = (x[name][:, t] for name in "qkv")
        beta, alpha = x["beta"][:, t, :, None], x["g"][:, t, :, None, None].exp() if decay else 1.0
        S = alpha * S
        written = beta * (v - torch.einsum("bhkv,bhk->bhv", S, k)) if erase else v
        S = S + k[..., None] * written[..., None, :]
        outputs.append(torch.einsum("bhkv,bhk->bhv", S, q) * K**-0.5)
    return torch.stack(outputs, dim=1), S


@pytest.mark.parametrize(
    ("function", "names", "erase", "decay"),
    [
        (functional.linear_attention, "q k v", False, False),
        (functional.delta_rule, "q k v beta", True, False),
        (functional.gated_delta_rule, "q k v g beta", True, True),
    ],
)
def test_function_is_its_recurrence(x, function, names, erase, decay):
    arguments = [x[name] for name in names.split()]
    o, S = function(*arguments, initial_state=x["S"], output_final_state=True)
    want, last = loop(x, erase, decay)
    assert error(o, want) < EXACT
    assert error(S, last) < EXACT
    assert function(*arguments)[1] is None


def test_keys_are_normalised_on_request(x):
    longer = 3 * x["k"]
    o, _ = functional.delta_rule(x["q"], longer, x["v"], x["beta"], use_qk_l2norm_in_kernel=True)
    unit = x["q"] / x["q"].norm(dim=-1, keepdim=True)
    want, _ = functional.delta_rule(unit, x["k"], x["v"], x["beta"])
    assert error(o, want) < tolerance(torch.float32).forward  # l2 has an epsilon of 1e-6
