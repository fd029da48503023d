"""The kernels of the adaptive softmax: equal to float64, also at infinity, on any number of threads, or not used."""

import pytest
import torch
from torch.nn.functional import linear

from fastweights.compiler.softmax import softmax_kernel
from fastweights.compiler.targets.cpp import softmax
from fastweights.compiler.targets.cpp.softmax import NAMES
from fastweights.models import _chosen_logits
from fastweights.models._chosen_logits import chosen_logits
from fastweights.testing.tolerance import error, tolerance

SHAPES = [(1, 1), (3, 2), (5, 15), (4, 16), (2, 17), (7, 1003)]
DTYPES = list(NAMES)
SUMS = tolerance(torch.float32)
"""Sums are in float32 for logits of any dtype."""


def logits_of(rows, columns, dtype):
    return (4 * torch.randn(rows, columns)).to(dtype)


@pytest.fixture
def two_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_log_sum_exp(shape, dtype):
    logits = logits_of(*shape, dtype)
    got = softmax_kernel(logits).log_sum_exp(logits)
    assert got.dtype == torch.float32
    assert error(got, logits.double().logsumexp(-1)) < SUMS.forward


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    "row",
    [[1e4, 1e4], [-1e4, -1e4], [3e38, 0.0], [float("inf"), 0.0], [float("-inf"), 1.0], [float("-inf")] * 2],
    ids=str,
)
@pytest.mark.parametrize("width", [2, 20])
def test_log_sum_exp_of_large_and_infinite_logits(row, width, dtype):
    logits = torch.tensor([row + [row[1]] * (width - 2)]).to(dtype)
    got, want = softmax_kernel(logits).log_sum_exp(logits), logits.float().logsumexp(-1)
    torch.testing.assert_close(got, want)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("at", [0, 16, 18])
def test_nan_stays(at, dtype):
    logits = logits_of(2, 19, dtype)
    logits[1, at] = float("nan")
    kernel, totals = softmax_kernel(logits), softmax_kernel(logits).log_sum_exp(logits)
    assert totals.isnan().tolist() == [False, True]
    d_logits = kernel.gradient_(logits, totals, torch.ones(2), torch.ones(2), torch.zeros(2).long(), torch.zeros(19))
    assert d_logits.isnan().any(1).tolist() == [False, True]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_gradient(shape, dtype):
    rows, columns = shape
    logits = logits_of(rows, columns, dtype)
    d_totals, d_chosen, chosen = torch.randn(rows), torch.randn(rows), torch.randint(columns, (rows,))
    totals, d_bias = logits.double().logsumexp(-1).float(), torch.randn(columns)
    want = (logits.double() - totals[:, None].double()).exp() * d_totals[:, None].double()
    want.scatter_add_(1, chosen[:, None], d_chosen[:, None].double())
    want_bias = d_bias.double() + want.sum(0)
    got = softmax_kernel(logits).gradient_(logits, totals, d_totals, d_chosen, chosen, d_bias)
    assert got is logits
    assert error(got, want) < tolerance(dtype).gradient
    assert error(d_bias, want_bias) < SUMS.gradient


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_gradient_of_a_likely_word_keeps_its_digits(dtype):
    """p - 1 for p = 0.999, which bfloat16 rounds to 1."""
    logits = torch.tensor([[7.0, 0.0] + [-30.0] * 20]).to(dtype)
    totals = logits.double().logsumexp(-1)
    want = (logits[0, 0].double() - totals).exp() - 1
    one, minus_one, first = torch.ones(1), -torch.ones(1), torch.zeros(1).long()
    got = softmax_kernel(logits).gradient_(logits, totals.float(), one, minus_one, first, torch.zeros(22))
    assert error(got[0, :1], want) < tolerance(torch.bfloat16).gradient


@pytest.mark.parametrize("dtype", DTYPES)
def test_threads_change_no_bit(dtype, two_threads, monkeypatch):
    monkeypatch.setattr(softmax, "TASK", 1)
    logits, chosen = logits_of(5, 37, dtype), torch.tensor([0, 17, 18, 19, 36])

    def results():
        kernel, d_bias, x = softmax_kernel(logits), torch.zeros(37), logits.clone()
        totals = kernel.log_sum_exp(x)
        return totals, kernel.gradient_(x, totals, totals, totals, chosen, d_bias), d_bias

    two = results()
    torch.set_num_threads(1)
    assert all(map(torch.equal, two, results()))


def test_other_logits_have_no_kernel():
    assert softmax_kernel(torch.zeros(2, 3, dtype=torch.float64)) is None
    assert softmax_kernel(torch.zeros(3, 2).T) is None
    assert softmax_kernel(torch.zeros(2, 3, device="meta")) is None


@pytest.mark.parametrize("dtype", DTYPES)
def test_pytorch_computes_the_same_without_a_compiler(dtype, monkeypatch):
    h, weight, bias = (torch.randn(shape).to(dtype).requires_grad_() for shape in [(6, 4), (9, 4), (9,)])
    chosen = torch.randint(9, (6,))

    def results():
        picked, totals = chosen_logits(h, weight, bias, chosen, torch.tensor([0, 6]))
        return picked, totals, *torch.autograd.grad((totals - picked).mean(), [h, weight, bias])

    fused = results()
    monkeypatch.setattr(_chosen_logits, "softmax_kernel", lambda logits: None)
    for got, want in zip(fused, results(), strict=True):
        assert error(got, want) < tolerance(dtype).gradient
    logits = linear(h, weight, bias)
    assert error(fused[1], logits.double().logsumexp(-1)) < tolerance(dtype).forward
