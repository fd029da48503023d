"""The papers' networks as they are printed: what feeds what, and how many parameters that takes."""

import pytest
import torch
from torch.nn.functional import layer_norm

from fastweights.layers import make_layer
from fastweights.models.recurrent_model import RecurrentModel
from fastweights.recipes.ba2016 import table_1
from fastweights.recipes.ba2016._glimpses import SCHEDULES
from fastweights.testing.tolerance import error, tolerance

SYMBOLS, DIGITS = 37, 10


def ba_network(model: str, units: int) -> RecurrentModel:
    """The network of Ba et al. 2016, Table 1, in float64, with weights that are all different."""
    options = table_1.trial(model, str(units), "paper").model_options
    network = RecurrentModel("tokens", SYMBOLS, DIGITS, **options).double().eval()
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(torch.randn_like(parameter) / 4)
    return network


def test_ba_network_is_the_paper_s_loop():
    """Sec. 4.1: 50 numbers a symbol, mapped to 100; R units with fast weights, S = 1; 100 ReLUs; 10 digits."""
    network, tokens = ba_network("fast-weight-rnn", 20), torch.randint(SYMBOLS, (3, 11))
    embedding, projection = network.reader[0], network.reader[1]
    C, weights = network.layer.slow_net.projection.weight, network.layer.slow_weights
    assert (weights.decay.float().item(), weights.eta.item()) == pytest.approx((0.95, 0.5))
    A, h = torch.zeros(3, 20, 20).double(), torch.zeros(3, 20).double()
    for t in range(11):
        A = weights.decay * A + weights.eta * h.unsqueeze(2) * h.unsqueeze(1)
        boundary = h @ weights.W[0].T + projection(embedding(tokens[:, t])) @ C.T
        read = (A @ boundary.relu().unsqueeze(2)).squeeze(2)
        h = layer_norm(boundary + read, (20,), weights.gain[0, 0], weights.bias[0, 0]).relu()
    assert error(network(tokens, 1), network.head(h).unsqueeze(1)) < tolerance(torch.float64).forward


@pytest.mark.parametrize("units", [20, 50, 100])
def test_ba_networks_have_the_parameters_of_the_paper_s_description(units):
    """Fast weights cost two vectors a unit, for LayerNorm, and spare two biases; an LSTM costs four recurrent nets."""
    around = SYMBOLS * 50 + (50 * 100 + 100) + (units * 100 + 100) + (100 * DIGITS + DIGITS)
    memory = {
        "irnn": units * (units + 100) + 2 * units,
        "lstm": 4 * (units * (units + 100) + 2 * units),
        "fast-weight-rnn": units * (units + 100) + 2 * units,
    }
    for model, count in memory.items():
        assert sum(p.numel() for p in ba_network(model, units).parameters()) == around + count


def test_schedule_by_quadrants_is_what_the_layer_does_by_itself():
    layer, x = make_layer("multi-level-fast-weight-rnn", 12, heads=1).double(), torch.randn(2, 24, 12).double()
    marks = {name: torch.tensor(steps).expand(2, 24) for name, steps in SCHEDULES["quadrant"].items()}
    assert torch.equal(layer(x)[0], layer(x, **marks)[0])
