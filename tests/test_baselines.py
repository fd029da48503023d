"""The baselines equal the formulas of the papers as loops, and softmax attention in every precision."""

import math

import pytest
import torch
from torch import nn
from torch.nn.functional import scaled_dot_product_attention

from fastweights import InputError
from fastweights.core.autocast import PRECISIONS
from fastweights.layers import make_layer
from fastweights.layers.base.attention import LONG, attention
from fastweights.testing.tolerance import error, tolerance

B, T, D, H = 2, 11, 8, 2
EXACT = tolerance(torch.float64).forward


def layer_and_input(name, **options):
    """A layer in float64 and evaluation mode, with all parameters different from their initial values."""
    layer = make_layer(name, D, num_heads=H, **options).double().eval()
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.add_(torch.randn_like(parameter) / 4)
    return layer, torch.randn(B, T, D, dtype=torch.float64)


def test_irnn_equals_a_loop():
    layer, x = layer_and_input("irnn")
    weights = layer.state_dict()
    W, C = weights["rnn.weight_hh_l0"], weights["rnn.weight_ih_l0"]
    b = weights["rnn.bias_hh_l0"] + weights["rnn.bias_ih_l0"]
    h, want = torch.zeros(B, D, dtype=x.dtype), []
    for t in range(T):
        h = (h @ W.T + x[:, t] @ C.T + b).clamp(min=0)
        want.append(h)
    y, state = layer(x)
    assert error(y, torch.stack(want, dim=1)) < EXACT
    assert torch.equal(state.h, y[:, -1])


def test_initial_irnn_is_the_identity():
    layer = make_layer("irnn", D, num_heads=H)
    h = torch.rand(B, D)
    y, _ = layer(torch.zeros(B, T, D), type(layer.initial_state(B))(h))
    assert torch.equal(y, h.unsqueeze(1).expand(B, T, D))


def sinusoid(distance):
    angles = [distance / 10000 ** (2 * n / D) for n in range(D // 2)]
    return torch.tensor([*map(math.sin, angles), *map(math.cos, angles)], dtype=torch.float64)


def transformer_xl_step(layer, inputs, head):
    """The read of a head at the last of `inputs`, `[n, D]`: the sum of the paper's four terms."""
    d = D // H
    rows = slice(head * d, head * d + d)
    W_q, W_kR = layer.query.weight[rows], layer.position.weight[rows]
    W_kE, W_v = layer.key_value.weight[:D][rows], layer.key_value.weight[D:][rows]
    u, v = layer.content_bias[head], layer.position_bias[head]
    q, last = W_q @ inputs[-1], len(inputs) - 1
    scores = []
    for j, E_j in enumerate(inputs):
        R = sinusoid(last - j)
        scores.append(q @ W_kE @ E_j + q @ W_kR @ R + u @ W_kE @ E_j + v @ W_kR @ R)
    weights = (torch.stack(scores) / d**0.5).softmax(0)
    return sum(weight * (W_v @ E_j) for weight, E_j in zip(weights, inputs, strict=True))


@pytest.mark.parametrize("memory", [1, 4, 20])
@torch.no_grad()
def test_transformer_xl_equals_the_four_terms_of_the_paper(memory):
    """Two windows, the second with a memory of the first and a reset in one member of the batch."""
    layer, x = layer_and_input("transformer-xl", mem_len=memory)
    cut = 6
    reset = torch.zeros(B, T, dtype=torch.bool)
    reset[1, 8] = True
    first, state = layer(x[:, :cut], reset=reset[:, :cut])
    second, _ = layer(x[:, cut:], state, reset[:, cut:])
    y = torch.cat([first, second], dim=1)
    for b in range(B):
        for t in range(T):
            start = max(8 if reset[b, : t + 1].any() else 0, t - memory)
            read = torch.cat([transformer_xl_step(layer, x[b, start : t + 1], head) for head in range(H)])
            assert error(y[b, t], layer.output.weight @ read) < EXACT


SMALL_SNAIL = {"length": 8, "filters": 3, "key_size": 5, "value_size": 4, "window_size": 4}


def snail_convolutions(layer, x):
    """The dense blocks as dilated convolutions of torch over zero-padded inputs, `[B, T, C]`."""
    z = x.transpose(1, 2)
    for n, dilation in enumerate([2, 4, 8]):
        weights = layer.state_dict()
        weight, bias = (weights[f"dense.{n}.convolution.{kind}"] for kind in ("weight", "bias"))
        kernel = weight.unflatten(1, (2, -1)).transpose(1, 2)
        a, b = nn.functional.conv1d(nn.functional.pad(z, (dilation, 0)), kernel, bias, dilation=dilation).chunk(2, 1)
        z = torch.cat([z, a.tanh() * b.sigmoid()], dim=1)
    return z.transpose(1, 2)


@torch.no_grad()
def test_snail_equals_dilated_convolutions_and_attention():
    layer, x = layer_and_input("snail", **SMALL_SNAIL)
    z = snail_convolutions(layer, x)
    q, k, v = layer.attention.projection(z).split([5, 5, 4], dim=-1)
    for t in range(T):
        window = slice(max(t - 3, 0), t + 1)
        weights = (torch.einsum("bk,bjk->bj", q[:, t], k[:, window]) / 5**0.5).softmax(-1)
        read = torch.einsum("bj,bjv->bv", weights, v[:, window])
        assert error(layer(x)[0][:, t], layer.output(torch.cat([z[:, t], read], dim=-1))) < EXACT


def test_receptive_field_of_snail():
    """Convolutions reach the even distances up to 2 + 4 + 8; a window of 2 shifts them by at most one step."""
    layer, _ = layer_and_input("snail", **{**SMALL_SNAIL, "window_size": 2})
    x = torch.randn(1, 30, D, dtype=torch.float64, requires_grad=True)
    (gradient,) = torch.autograd.grad(layer(x)[0][0, 20].square().sum(), x)
    reached = gradient[0].abs().sum(-1).nonzero().flatten()
    assert (20 - reached).tolist() == list(range(15, -1, -1))
    with torch.no_grad():
        layer.output.weight[:, -SMALL_SNAIL["value_size"] :] = 0
    (gradient,) = torch.autograd.grad(layer(x)[0][0, 20].square().sum(), x)
    reached = gradient[0].abs().sum(-1).nonzero().flatten()
    assert (20 - reached).tolist() == list(range(14, -1, -2))


@torch.no_grad()
def test_performer_with_many_features_is_close_to_softmax_attention():
    """For keys of about unit length, since the variance of the features grows exponentially with the length."""
    layer = make_layer("performer", D, num_heads=1, feature_map="scaled-favor-20000").double().eval()
    x = torch.randn(B, T, D, dtype=torch.float64)
    q, k, v = layer.slow_net.projection(x).split(D, dim=-1)
    later = torch.ones(T, T).triu(1).bool()
    scores = (q @ k.transpose(1, 2) / D**0.5).masked_fill(later, -torch.inf)
    means = torch.zeros(T, T, dtype=x.dtype).masked_fill(later, -torch.inf)
    want, average = (layer.output(s.softmax(-1) @ v) for s in (scores, means))
    off = error(layer(x)[0], want)
    assert off < 0.02  # random features: the error is proportional to 1 / sqrt(number)
    assert error(average, want) > 5 * off


def complex_vectors(parts):
    """`[B, 2n Z]` -> n complex tensors `[B, Z]`, each with its real parts first."""
    return [torch.complex(*pair.unbind(1)) for pair in parts.unflatten(1, (-1, 2, D // 2)).unbind(1)]


def bound(z):
    return z / z.abs().clamp(min=1)


@torch.no_grad()
def test_associative_lstm_equals_its_complex_formula():
    layer, x = layer_and_input("associative-lstm", copies=3)
    x = 3 * x  # some moduli above 1, some not
    Z = D // 2
    c, h, moduli = torch.zeros(3, B, Z, dtype=torch.complex128), torch.zeros(B, D, dtype=x.dtype), []
    y, state = layer(x)
    for t in range(T):
        linear = x[:, t] @ layer.input.weight.T + layer.input.bias + h @ layer.recurrent.T
        f, i, o = linear[:, : 3 * Z].sigmoid().chunk(3, dim=1)
        u, r_i, r_o = complex_vectors(linear[:, 3 * Z :])
        moduli.append(u.abs())
        u, r_i, r_o = bound(u), bound(r_i), bound(r_o)
        c = torch.stack([f * c[s] + r_i[:, P] * (i * u) for s, P in enumerate(layer.permutations)])
        read = o * bound(torch.stack([r_o[:, P] * c[s] for s, P in enumerate(layer.permutations)]).mean(0))
        h = torch.cat([read.real, read.imag], dim=1)
        assert error(y[:, t], h) < EXACT
    assert error(torch.complex(*state.c[:, 0].unbind(2)).transpose(0, 1).abs(), c.abs()) < EXACT
    assert 0 < (torch.cat(moduli) > 1).double().mean() < 1


def test_associative_lstm_has_finite_gradients_at_zero():
    layer = make_layer("associative-lstm", D, num_heads=H)
    for parameter in layer.parameters():
        nn.init.zeros_(parameter)
    y, _ = layer(torch.zeros(B, T, D))
    for gradient in torch.autograd.grad(y.sum(), list(layer.parameters())):
        assert gradient.isfinite().all()


def test_permutations_are_reproducible():
    one, other = (make_layer("associative-lstm", 64, num_heads=H) for _ in range(2))
    assert torch.equal(one.permutations, other.permutations)
    assert torch.equal(one.permutations.sort().values, torch.arange(32).expand(4, 32))
    assert len(one.permutations.unique(dim=0)) == 4
    with torch.device("meta"):
        assert make_layer("associative-lstm", 64, num_heads=H).permutations.is_meta


INVALID = [
    ("transformer-xl", {"mem_len": 0}, "mem_len must be a whole number of at least 1, got 0"),
    ("snail", {"length": 1}, "length must be a whole number of at least 2, got 1"),
    ("snail", {"filters": 0}, "filters must be a whole number of at least 1, got 0"),
    ("snail", {"window_size": 0}, "window_size must be a whole number of at least 1, got 0"),
    ("associative-lstm", {"copies": 0}, "copies must be a whole number of at least 1, got 0"),
]


@pytest.mark.parametrize(("name", "options", "message"), INVALID)
def test_invalid_option_is_rejected(name, options, message):
    with pytest.raises(InputError, match=message):
        make_layer(name, D, num_heads=H, **options)


@pytest.mark.parametrize("name", ["transformer-xl", "associative-lstm"])
def test_odd_size_is_rejected(name):
    with pytest.raises(InputError, match=r"d_model must be even, since .*, got 9"):
        make_layer(name, 9, num_heads=3)


LENGTHS = [(1, 1), (5, 9), (3, LONG - 1), (3, LONG)]


def problem(dtype, steps, keys):
    """Queries, keys and values, rounded to the dtype, and a mask that leaves every query a key."""
    q, k, v = (torch.randn(2, 3, n, 4).to(dtype).requires_grad_() for n in (steps, keys, keys))
    mask = torch.rand(2, 1, steps, keys) < 0.7
    mask[..., 0] = True
    return (q, k, v), mask


def formula(q, k, v, mask):
    scores = q @ k.mT * q.shape[-1] ** -0.5
    scores = scores.masked_fill(~mask, -torch.inf) if mask.dtype == torch.bool else scores + mask
    return scores.softmax(-1) @ v


@pytest.mark.parametrize(("steps", "keys"), LENGTHS)
@pytest.mark.parametrize("dtype", PRECISIONS)
@pytest.mark.parametrize("additive", [False, True])
def test_attention_and_its_gradients_equal_the_formula(dtype, steps, keys, additive):
    x, mask = problem(dtype, steps, keys)
    if additive:
        mask = torch.randn(mask.shape).to(dtype)
    wide = [part.detach().double().requires_grad_() for part in x]
    y, want = attention(*x, mask), formula(*wide, mask.double() if additive else mask)
    d = torch.randn_like(y)
    got = (y, *torch.autograd.grad(y, x, d))
    expected = (want, *torch.autograd.grad(want, wide, d.double()))
    assert all(part.dtype == dtype for part in got)
    # A single key has the weight 1: the gradients of queries and keys are 0.
    assert all(error(a, b, least=1.0) < tolerance(dtype).gradient for a, b in zip(got, expected, strict=True))


@pytest.mark.parametrize("keys", [7, LONG])
@pytest.mark.parametrize("dtype", PRECISIONS)
@pytest.mark.parametrize("region", [torch.bfloat16, torch.float16])
def test_attention_in_autocast_equals_that_of_pytorch(dtype, region, keys):
    x, mask = problem(dtype, 5, keys)
    with torch.autocast("cpu", region):
        y, want = attention(*x, mask), scaled_dot_product_attention(*x, attn_mask=mask)
        assert torch.is_autocast_enabled("cpu")
    assert y.dtype == want.dtype
    assert error(y, want) < tolerance(y.dtype).forward


def test_half_precision_is_rounded_once_on_a_cpu():
    """Results in float32, rounded once. PyTorch's kernels also round intermediate results."""
    x, mask = problem(torch.bfloat16, 5, 9)
    wide = [part.detach().float() for part in x]
    assert torch.equal(attention(*x, mask), scaled_dot_product_attention(*wide, attn_mask=mask).bfloat16())
