"""Dropout of the models: PyTorch's in all but the numbers that it draws."""

import pytest
import torch

from fastweights.models.dropout import Dropout
from fastweights.models.word_dropout import WordDropout

SHAPES = [(1,), (3,), (2, 37, 5), (0, 4), (64, 1000)]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("p", [0.1, 0.5, 0.9999])
def test_units_are_dropped_or_scaled_and_so_are_gradients(shape, dtype, p):
    x = torch.rand(shape, dtype=dtype).add(1).requires_grad_()
    y = Dropout(p)(x)
    y.sum().backward()
    assert y.dtype == dtype
    assert y.shape == x.shape
    kept = y != 0
    scale = torch.full_like(x, 65536 / (65536 - round(p * 65536)))
    assert torch.equal(y, (x * scale).where(kept, 0.0))
    assert torch.equal(x.grad, scale.where(kept, 0.0))


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
def test_as_many_are_dropped_as_asked_for(p):
    """Of a million units within five standard deviations, and neighbours that share a draw as any two."""
    n = 1_000_000
    dropped = (Dropout(p)(torch.ones(n)) == 0).double()
    deviation = (p * (1 - p) / n) ** 0.5
    assert abs(dropped.mean().item() - p) < 5 * deviation
    for apart in (1, 2, 3, 4):
        correlation = torch.corrcoef(torch.stack([dropped[:-apart], dropped[apart:]]))[0, 1].item()
        assert abs(correlation) < 5 / n**0.5


def test_it_repeats_with_its_seed_and_differs_from_call_to_call():
    layer, x = Dropout(0.5), torch.ones(1000)
    torch.manual_seed(3)
    first, second = layer(x), layer(x)
    torch.manual_seed(3)
    assert torch.equal(layer(x), first)
    assert not torch.equal(first, second)


@pytest.mark.parametrize("p", [0.0, 1e-9])
def test_nothing_is_dropped_by_a_rate_of_nearly_zero(p):
    x = torch.randn(1000)
    assert torch.equal(Dropout(p)(x), x)


def test_all_is_dropped_by_a_rate_of_one():
    assert (Dropout(1.0)(torch.ones(1000)) == 0).all()


def test_nothing_is_dropped_where_nothing_is_trained():
    x = torch.randn(1000)
    assert Dropout(0.9).eval()(x) is x


def test_strided_inputs():
    x = torch.ones(40, 50).T
    y = Dropout(0.5)(x)
    assert y.shape == (50, 40)
    assert set(y.unique().tolist()) == {0.0, 2.0}


def test_transforms_and_compiled_programs_take_pytorchs_own():
    x = torch.ones(5, 200)
    rows = torch.func.vmap(Dropout(0.5), randomness="different")(x)
    compiled = torch.compile(Dropout(0.5), fullgraph=True, backend="eager")(x)
    for y in (rows, compiled):
        assert set(y.unique().tolist()) == {0.0, 2.0}


def test_a_dropped_word_is_dropped_wherever_it_occurs():
    torch.manual_seed(0)
    tokens = torch.arange(1000).repeat(2, 2)
    dropped = WordDropout(0.25)(torch.ones(2, 2000, 3), tokens, 1000)
    assert torch.equal(dropped[:, :1000], dropped[:, 1000:])
    assert torch.equal(dropped[0], dropped[1])
    assert dropped.unique().tolist() == pytest.approx([0.0, 4 / 3])
    assert 0.15 < (dropped[0, :1000, 0] == 0).float().mean() < 0.35
    assert torch.equal(WordDropout(0.25).eval()(torch.ones(2, 2000, 3), tokens, 1000), torch.ones(2, 2000, 3))
