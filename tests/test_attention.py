"""Softmax attention of the baselines: its formula in every precision, with PyTorch's dtypes."""

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

from fastweights.core.autocast import PRECISIONS
from fastweights.layers.base.attention import LONG, attention
from fastweights.testing.tolerance import error, tolerance

LENGTHS = [(1, 1), (5, 9), (3, LONG - 1), (3, LONG)]


def problem(dtype, steps, keys):
    """Queries, keys and values, as they are in dtype, and a mask behind which no query is alone."""
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
def test_it_is_its_formula_and_so_are_its_gradients(dtype, steps, keys, additive):
    x, mask = problem(dtype, steps, keys)
    if additive:
        mask = torch.randn(mask.shape).to(dtype)
    wide = [part.detach().double().requires_grad_() for part in x]
    y, want = attention(*x, mask), formula(*wide, mask.double() if additive else mask)
    d = torch.randn_like(y)
    got = (y, *torch.autograd.grad(y, x, d))
    wanted = (want, *torch.autograd.grad(want, wide, d.double()))
    assert all(part.dtype == dtype for part in got)
    # Of a single key the weight is 1: gradients of queries and keys are 0.
    assert all(error(a, b, least=1.0) < tolerance(dtype).gradient for a, b in zip(got, wanted, strict=True))


@pytest.mark.parametrize("keys", [7, LONG])
@pytest.mark.parametrize("dtype", PRECISIONS)
@pytest.mark.parametrize("region", [torch.bfloat16, torch.float16])
def test_an_autocast_region_gets_what_pytorch_would_give(dtype, region, keys):
    x, mask = problem(dtype, 5, keys)
    with torch.autocast("cpu", region):
        y, want = attention(*x, mask), scaled_dot_product_attention(*x, attn_mask=mask)
        assert torch.is_autocast_enabled("cpu")
    assert y.dtype == want.dtype
    assert error(y, want) < tolerance(y.dtype).forward


def test_half_precision_is_rounded_once_on_a_cpu():
    """What is computed in float32 is that, rounded: PyTorch's own kernels round in between."""
    x, mask = problem(torch.bfloat16, 5, 9)
    wide = [part.detach().float() for part in x]
    assert torch.equal(attention(*x, mask), scaled_dot_product_attention(*wide, attn_mask=mask).bfloat16())
