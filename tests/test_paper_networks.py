"""The papers' networks as they are printed: what feeds what, and how many parameters that takes."""

import math

import pytest
import torch
from torch import nn
from torch.nn.functional import layer_norm

from fastweights import InputError
from fastweights.catalogue import NORMS
from fastweights.layers import make_layer
from fastweights.models.block import Block
from fastweights.models.initialisation import start_small
from fastweights.models.language_model import LanguageModel
from fastweights.models.positions.ascending import Ascending
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
    assert torch.equal(layer(x)[0], layer(x, controls=marks)[0])


class Doubled(nn.Module):
    """A layer that is easy to follow: y = 2 x."""

    def forward(self, x, state=None, reset=None):
        return 2 * x, ()


def norm(x):
    return layer_norm(x, x.shape[-1:])


WIRINGS = {
    "pre": (lambda x, F: x + F(norm(x))),
    "post": (lambda x, F: norm(x + F(x))),
    "normed-skip": (lambda x, F: norm(x) + F(norm(x))),
    "raw-input": (lambda x, F: norm(x) + F(x)),
    "plain": (lambda x, F: x + F(x)),
}


@pytest.mark.parametrize("around_layer", NORMS.names())
@pytest.mark.parametrize("around_network", NORMS.names())
def test_block_is_wired_as_its_norms_say(around_layer, around_network):
    block = Block(Doubled(), 8, 16, norm=around_layer, feed_forward_norm=around_network)
    x = torch.randn(2, 3, 8)
    h = WIRINGS[around_layer](x, lambda u: 2 * u)
    want = WIRINGS[around_network](h, block.feed_forward)
    assert error(block(x)[0], want) < tolerance(torch.float32).forward


def test_few_shot_self_referential_block():
    """Irie et al. 2022 (code): LN(x) + W_o SRWM(x), then pre-LN around the feed-forward network."""
    block = Block(make_layer("srwm", 8, heads=2), 8, 16, norm="raw-input", feed_forward_norm="pre")
    x = torch.randn(2, 3, 8)
    h = block.layer_norm(x) + block.layer(x)[0]
    want = h + block.feed_forward(block.feed_forward_norm(h))
    assert error(block(x)[0], want) < tolerance(torch.float32).forward


def papers_language_model(layer="delta-net", **options):
    model = LanguageModel(
        50, layer, 32, depth=2, heads=4, d_ff=64, positions="descending", scaled=True, norm="post", **options
    )
    start_small(model)
    return model


def test_language_model_of_the_papers():
    """Embedding times sqrt(D) plus descending sinusoids, post-LN blocks whose memory is read times 1 / sqrt(d)."""
    model = papers_language_model(options={"scale": 8**-0.5}).double().eval()
    tokens = torch.randint(50, (2, 7))
    h = 32**0.5 * model.embedding(tokens)
    for t in range(7):
        angles = (6 - t) / 10000 ** (torch.arange(0, 32, 2).double() / 32)
        h[:, t] += torch.cat([angles.sin(), angles.cos()])
    for block in list(model.blocks)[1:]:
        h = block.layer_norm(h + block.layer(h)[0])
        h = block.feed_forward_norm(h + block.feed_forward(h))
    assert model.blocks[1].layer.scale == 8**-0.5
    assert error(model(tokens)[0], model.output(h)) < tolerance(torch.float64).forward


def test_language_model_of_the_papers_starts_small():
    model = papers_language_model()
    weights = {name: p for name, p in model.named_parameters() if p.numel() > 500}
    assert all(0.018 < p.std() < 0.022 for p in weights.values()), {n: p.std() for n, p in weights.items()}
    gains = torch.cat([m.weight for m in model.modules() if isinstance(m, nn.LayerNorm)])
    assert gains.mean().item() == pytest.approx(1, abs=0.01)
    assert all((p == 0).all() for name, p in model.named_parameters() if name.endswith("bias"))


def test_descending_positions_cannot_be_carried():
    model, tokens = papers_language_model(), torch.randint(50, (2, 7))
    _, state = model(tokens)
    with pytest.raises(InputError, match="positions='ascending'"):
        model(tokens, state)
    with pytest.raises(InputError, match="positions='ascending'"):
        model(tokens, None, torch.zeros(2, 7, dtype=torch.bool))


def test_ascending_positions_are_sines_and_cosines_by_turns():
    x = torch.zeros(1, 4, 6, dtype=torch.float64)
    want = [[f(t / 10000 ** (2 * i / 6)) for i in range(3) for f in (math.sin, math.cos)] for t in range(4)]
    assert error(Ascending(6).double()(x)[0][0], torch.tensor(want, dtype=x.dtype)) < tolerance(torch.float64).forward
