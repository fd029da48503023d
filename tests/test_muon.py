"""The optimiser Muon: its iteration, its step, and the matrices that it trains."""

import pytest
import torch
from torch import nn

from fastweights.layers import layer_names
from fastweights.models import LanguageModel
from fastweights.testing.tolerance import error, tolerance
from fastweights.training import muon
from fastweights.training.loops.language_modelling import make_optimiser
from fastweights.training.muon import Muon, matrices_of, orthogonalised
from fastweights.training.settings.language_modelling import LanguageModelling
from tiers import base_of, in_tiers

SHAPES = [(1, 7), (5, 5), (12, 64), (64, 64)]
SETTINGS = {"steps": 1, "batch_size": 1, "window": 1, "evaluate_every": 1, "learning_rate": 0.01, "weight_decay": 0.5}


def by_singular_values(G):
    """The polynomials of the iteration, applied to the singular values."""
    U, s, V = torch.linalg.svd(G, full_matrices=False)
    s = s / (muon.MARGIN * s.norm() + 1e-7)
    for a, b, c in muon.POLYNOMIALS:
        s = a * s + b * s**3 + c * s**5
    return (U * s) @ V


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_the_iteration_changes_only_singular_values(shape):
    G = torch.randn(shape, dtype=torch.float64)
    assert error(orthogonalised(G), by_singular_values(G)) < tolerance(G.dtype).forward


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("size", [1e-6, 1.0, 1e6])
def test_singular_values_come_near_1_whatever_the_size_of_the_gradient(shape, size):
    """For those of at least 1 % of the norm, also where products are in bfloat16."""
    U, _, V = torch.linalg.svd(torch.randn(shape), full_matrices=False)
    G = size * (U * torch.linspace(0.1, 1, min(shape))) @ V
    values = torch.linalg.svdvals(orthogonalised(G))
    assert values.min() > 0.15
    assert values.max() < 1.95


def test_no_gradient_gives_no_step():
    assert orthogonalised(torch.zeros(3, 5)).count_nonzero() == 0


def test_a_step_is_that_of_its_formula():
    """Three steps in float64: blocks of as many rows as columns, momentum, decay; AdamW for the vector."""
    generator = torch.Generator().manual_seed(1)
    draw = [torch.randn(10, 4, dtype=torch.float64, generator=generator) for _ in range(4)]
    W, b = nn.Parameter(draw[0].clone()), nn.Parameter(draw[0][0].clone())
    other = nn.Parameter(b.detach().clone())
    optimiser = Muon([W], [b], lr=0.1, weight_decay=0.5, betas=(0.9, 0.95))
    adam_w = torch.optim.AdamW([other], lr=0.1, weight_decay=0.0, betas=(0.9, 0.95), fused=True)
    want, momentum = draw[0], torch.zeros_like(draw[0])
    for G in draw[1:]:
        W.grad, b.grad, other.grad = G.clone(), G[0].clone(), G[0].clone()
        optimiser.step()
        adam_w.step()
        momentum = 0.95 * momentum + 0.05 * G
        direction = torch.cat([by_singular_values(part) for part in (0.05 * G + 0.95 * momentum).split(4)])
        want = 0.95 * want - 0.1 * 2 * direction
    assert error(W, want) < tolerance(W.dtype).forward
    assert torch.equal(b, other)


def test_a_saved_state_continues_to_the_same_bits():
    model = nn.Linear(6, 6)
    whole, parts = (Muon([model.weight], [model.bias], 0.1, 0.5, (0.9, 0.95)) for _ in range(2))
    start = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    gradients = torch.randn(4, 6, 6)

    def steps(optimiser, numbers):
        for n in numbers:
            model.weight.grad, model.bias.grad = gradients[n].clone(), gradients[n][0].clone()
            optimiser.step()

    steps(whole, range(4))
    want = [parameter.detach().clone() for parameter in model.parameters()]
    model.load_state_dict(start)
    steps(parts, range(2))
    resumed = Muon([model.weight], [model.bias], 0.1, 0.5, (0.9, 0.95))
    resumed.load_state_dict(parts.state_dict())
    steps(resumed, range(2, 4))
    assert all(map(torch.equal, model.parameters(), want))


@pytest.mark.parametrize("layer", in_tiers({name: {base_of(name)} for name in layer_names()}))
def test_every_parameter_has_one_optimiser(layer):
    """Muon trains matrices inside of blocks; AdamW trains all others, embeddings and output layer among them."""
    model = LanguageModel(10, layer, d_model=8, num_layers=1, num_heads=2, d_ff=16)
    optimiser = make_optimiser(model, LanguageModelling(**SETTINGS, optimizer="muon"))
    orthogonal, others = (set(group["params"]) for group in optimiser.param_groups)
    assert orthogonal == set(matrices_of(model))
    assert not orthogonal & others
    assert orthogonal | others == set(model.parameters())
    assert {model.blocks[0].feed_forward[0].weight, model.blocks[0].feed_forward[3].weight} <= orthogonal
    assert {model.embedding.weight, model.output.weight} <= others
    assert all(matrix.ndim == 2 for matrix in orthogonal)
