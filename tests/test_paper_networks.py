"""Networks of the papers compared with their equations, and their numbers of parameters."""

import math

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import conv1d, layer_norm, pad

import formulas
from fastweights import Cell, InputError, scan
from fastweights.cells.delta_rnn_v1 import make_delta_rnn_v1
from fastweights.layers import make_layer
from fastweights.models.block import Block
from fastweights.models.block_model import BlockModel
from fastweights.models.blocks import Blocks
from fastweights.models.glimpse_network import GlimpseNetwork
from fastweights.models.initialisation import init_small_
from fastweights.models.language_model import LanguageModel
from fastweights.models.positions.ascending import Ascending
from fastweights.models.recurrent_model import RecurrentModel
from fastweights.models.snail_network import SNAILNetwork
from fastweights.models.stack import make_stack
from fastweights.recipes.ba2016 import table_1
from fastweights.recipes.ba2016._glimpses import SCHEDULES
from fastweights.recipes.irie2021 import table_1 as irie2021
from fastweights.recipes.schlag2021 import table_2 as schlag2021
from fastweights.registry import NORMS
from fastweights.rules._activations import ACTIVATIONS
from fastweights.testing.samples import Shape, sample_inputs
from fastweights.testing.tolerance import error, tolerance

SYMBOLS, DIGITS = 37, 10


def ba_network(model: str, units: int) -> RecurrentModel:
    """Network of Ba et al. 2016, Table 1, in float64 with different weights everywhere."""
    options = table_1.trial(model, str(units), "paper").model_options
    network = RecurrentModel("tokens", SYMBOLS, DIGITS, **options).double().eval()
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(torch.randn_like(parameter) / 4)
    return network


def test_network_of_ba_equals_the_loop_of_the_paper():
    """Sec. 4.1: embeddings of 50 mapped to 100; R units with fast weights, S = 1; 100 ReLUs; 10 digits."""
    network, tokens = ba_network("fast-weight-rnn", 20), torch.randint(SYMBOLS, (3, 11))
    embedding, projection = network.input_embedding[0], network.input_embedding[1]
    C, weights = network.layer.slow_net.projection.weight, network.layer.slow_weights
    assert (weights.decay.float().item(), weights.eta.item()) == pytest.approx((0.95, 0.5))
    A, h = torch.zeros(3, 20, 20).double(), torch.zeros(3, 20).double()
    for t in range(11):
        A = weights.decay * A + weights.eta * h.unsqueeze(2) * h.unsqueeze(1)
        boundary = h @ weights.W[0].T + projection(embedding(tokens[:, t])) @ C.T
        read = (A @ boundary.relu().unsqueeze(2)).squeeze(2)
        h = layer_norm(boundary + read, (20,), weights.gain[0, 0], weights.bias[0, 0]).relu()
    assert error(network(tokens, 1), network.head(h).unsqueeze(1)) < tolerance(torch.float64).forward


@pytest.mark.parametrize("form", ["matrix", "attention"])
@pytest.mark.parametrize("steps", [1, 3])
def test_fast_weights_without_layer_norm_equal_equation_2(form, steps):
    """Ba et al. 2016, Eqs. 1-2: h <- relu(W h + C x + A h') for S steps, without gain, bias or normalisation."""
    options = {"inner_steps": steps, "layer_norm": False, "form": form, "input_size": 4}
    layer, x = make_layer("fast-weight-rnn", 6, num_heads=1, **options).double(), torch.randn(7, 4, dtype=torch.float64)
    layer.slow_weights.W.data.normal_(std=0.3)
    C, W = (p.detach().numpy() for p in (layer.slow_net.projection.weight, layer.slow_weights.W[0]))
    decay, eta = (float(constant) for constant in (layer.slow_weights.decay, layer.slow_weights.eta))
    assert (decay, eta) == pytest.approx((0.95, 0.5))
    A, h, outputs = np.zeros((6, 6)), np.zeros(6), []
    for t in range(7):
        A = decay * A + eta * np.outer(h, h)
        boundary = W @ h + C @ x[t].numpy()
        h = np.maximum(boundary, 0)
        for _ in range(steps):
            h = np.maximum(boundary + A @ h, 0)
        outputs.append(h)
    y, state = layer(x[None])
    assert error(y[0], torch.tensor(np.array(outputs))) < tolerance(torch.float64).forward
    assert error(state.A[0, 0], torch.tensor(A)) < tolerance(torch.float64).forward
    assert [name for name, _ in layer.named_parameters()] == ["slow_net.projection.weight", "slow_weights.W"]


@pytest.mark.parametrize("units", [20, 50, 100])
def test_networks_of_ba_have_the_papers_numbers_of_parameters(units):
    """Fast weights have a gain and a bias per unit in place of two biases. An LSTM has four recurrent networks."""
    others = SYMBOLS * 50 + (50 * 100 + 100) + (units * 100 + 100) + (100 * DIGITS + DIGITS)
    memory = {
        "irnn": units * (units + 100) + 2 * units,
        "lstm": 4 * (units * (units + 100) + 2 * units),
        "fast-weight-rnn": units * (units + 100) + 2 * units,
    }
    for model, count in memory.items():
        assert sum(p.numel() for p in ba_network(model, units).parameters()) == others + count


def test_the_schedule_of_quadrants_is_the_default_of_the_layer():
    layer, x = make_layer("multi-level-fast-weight-rnn", 12, num_heads=1).double(), torch.randn(2, 24, 12).double()
    marks = {name: torch.tensor(steps).expand(2, 24) for name, steps in SCHEDULES["quadrant"].items()}
    assert torch.equal(layer(x)[0], layer(x, controls=marks)[0])


@pytest.mark.parametrize("layers", [2, 3])
def test_convnet_on_glimpses_equals_its_formula(layers):
    """Loops over quadrants and glimpses with one map for all glimpses, one for all quadrants and one for the image."""
    network, x = (
        GlimpseNetwork("features", 4, 10, features=3, num_layers=layers).double(),
        torch.randn(2, 24, 4).double(),
    )
    maps = [module for module in network.modules() if isinstance(module, nn.Linear)]
    for image, outputs in zip(x, network(x, 1), strict=True):
        units = [affine(maps[0], glimpse).relu() for glimpse in image]
        if layers == 3:
            units = [affine(maps[1], torch.cat(units[6 * n : 6 * n + 6])).relu() for n in range(4)]
        whole = affine(maps[-2], torch.cat(units)).relu()
        assert error(outputs[0], affine(maps[-1], whole)) < tolerance(torch.float64).forward
    assert len(maps) == layers + 1


def affine(linear, x):
    return linear.weight @ x + linear.bias


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_programmer_of_1991_equals_its_formula(activation):
    """Schlag et al. 2021, Eqs. 1-3: a and b are maps of x, W <- sigma(W + a b^T), y = W x, per head."""
    layer = make_layer("outer-product", 6, num_heads=2, activation=activation, query="input").double()
    x = torch.randn(5, 6, dtype=torch.float64)
    k, v = (layer.slow_net.projection.weight @ x.T).T.unflatten(-1, (2, 2, 3)).unbind(2)
    read = []
    for h in range(2):
        W = torch.zeros(3, 3, dtype=torch.float64)
        for t in range(5):
            W = SIGMA[activation](W + v[t, h].unsqueeze(1) * k[t, h])
            read.append(W @ x[t, 3 * h : 3 * h + 3])
    want = layer.output(torch.stack(read).unflatten(0, (2, 5)).transpose(0, 1).flatten(1))
    assert error(layer(x[None])[0][0], want) < tolerance(torch.float64).forward


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_recurrent_network_with_fast_weights_equals_its_formula(activation):
    """Irie et al. 2021, Eq. 11: y <- sigma(W q + R y), where the delta rule writes W and R."""
    cell, shape = Cell.from_function(make_delta_rnn_v1(activation)), Shape(1, 6, 1, 5, 4)
    inputs = sample_inputs(cell, shape)
    x = {name: leaf[0, :, 0].numpy() for name, leaf in inputs._asdict().items()}
    W, R, y, outputs = np.zeros((4, 5)), np.zeros((4, 4)), np.zeros(4), []
    for t in range(6):
        W = formulas.delta_update(W, formulas.softmax(x["k"][t]), x["v"][t], x["beta"][t])
        keys = formulas.softmax(x["recurrent_k"][t])
        R = formulas.delta_update(R, keys, x["recurrent_v"][t], x["recurrent_beta"][t])
        y = SIGMA[activation](torch.tensor(W @ formulas.softmax(x["q"][t]) + R @ y)).numpy()
        outputs.append(y)
    got, _ = scan(cell, inputs, backend="reference")
    assert error(got[0, :, 0], torch.tensor(np.array(outputs))) < tolerance(torch.float64).forward


SIGMA = {
    "identity": lambda x: x,
    "relu": lambda x: (x + x.abs()) / 2,
    "sigmoid": lambda x: 1 / (1 + (-x).exp()),
    "softmax": lambda x: x.exp() / x.exp().sum(-1, keepdim=True),
    "tanh": lambda x: (x.exp() - (-x).exp()) / (x.exp() + (-x).exp()),
}


@pytest.mark.parametrize("feature_map", ["identity", "softmax"])
@pytest.mark.parametrize("output_size", [4, 10])
def test_self_referential_matrix_of_any_output_size_equals_its_formula(output_size, feature_map):
    """Irie et al. 2022, Eqs. 5-8: a matrix of d_out + 2 d_in + 4 rows, without an output projection."""
    layer = make_layer("srwm", 6, num_heads=2, output_size=output_size, feature_map=feature_map).double()
    x = torch.randn(2, 7, 6, dtype=torch.float64)
    y, _ = layer(x)
    assert y.shape == (2, 7, output_size)
    for b, h in np.ndindex(2, 2):
        part = x[b, :, 3 * h : 3 * h + 3]
        part = SIGMA[feature_map](part).numpy()
        params = {name: weight[h].detach().numpy() for name, weight in layer.slow_weights()._asdict().items()}
        state = {name: np.zeros_like(weight) for name, weight in params.items()}
        outputs, _ = formulas.loop("srwm", state, {"x": part}, params)
        got = y[b, :].unflatten(-1, (2, -1))[:, h]
        assert error(got, torch.tensor(outputs)) < tolerance(torch.float64).forward
    parts = [p.shape[1] for p in layer.parameters()]
    assert parts == [output_size // 2, 3, 3, 4]


@pytest.mark.parametrize("feature_map", ["identity", "softmax"])
def test_fake_self_referential_matrix_equals_its_formula(feature_map):
    """Irie et al. 2022, Sec. 4.3: the y part of Eq. 5, with softmax(x) in reinforcement learning."""
    layer, x = make_layer("fake-srwm", 6, num_heads=2, feature_map=feature_map).double(), torch.randn(2, 7, 6).double()
    parts = SIGMA[feature_map](x.unflatten(-1, (2, 3)))
    want = layer.output(torch.cat([parts[:, :, h] @ layer.weight[h].T for h in range(2)], -1))
    assert error(layer(x)[0], want) < tolerance(torch.float64).forward


class Doubled(nn.Module):
    """Layer with y = 2 x."""

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
def test_blocks_equal_the_formulas_of_their_norms(around_layer, around_network):
    block = Block(Doubled(), 8, 16, norm=around_layer, feed_forward_norm=around_network)
    x = torch.randn(2, 3, 8)
    h = WIRINGS[around_layer](x, lambda u: 2 * u)
    want = WIRINGS[around_network](h, block.feed_forward)
    assert error(block(x)[0], want) < tolerance(torch.float32).forward


def test_few_shot_block_equals_its_formula():
    """Irie et al. 2022 (code): LN(x) + W_o SRWM(x), then pre-LN around the feed-forward network."""
    block = Block(make_layer("srwm", 8, num_heads=2), 8, 16, norm="raw-input", feed_forward_norm="pre")
    x = torch.randn(2, 3, 8)
    h = block.layer_norm(x) + block.layer(x)[0]
    want = h + block.feed_forward(block.feed_forward_norm(h))
    assert error(block(x)[0], want) < tolerance(torch.float32).forward


def papers_language_model(layer="delta-net", **options):
    model = LanguageModel(
        50,
        layer,
        32,
        num_layers=2,
        num_heads=4,
        d_ff=64,
        positions="descending",
        scale_embeddings=True,
        norm="post",
        **options,
    )
    init_small_(model)
    return model


def test_language_model_of_the_papers_equals_its_formula():
    """Embedding times sqrt(D) plus descending sinusoids, and post-LN blocks with reads times 1 / sqrt(d)."""
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


def test_table_1_of_irie_has_the_two_networks_of_schlag():
    """Irie et al. 2021, Table 1, has the Transformer and the Linear Transformer of Schlag et al. 2021."""
    for mine, theirs in {"transformer": "transformer", "linear": "linear"}.items():
        one, other = irie2021.trial(mine, "truncated", "paper"), schlag2021.trial(theirs, "small", "paper")
        assert one == other
    for model in set(irie2021.MODELS) - {"transformer", "linear"}:
        assert irie2021.trial(model, "truncated", "paper").model_options["norm"] == "normed-skip"


def test_language_model_of_the_papers_has_small_initial_weights():
    model = papers_language_model()
    weights = {name: p for name, p in model.named_parameters() if p.numel() > 500}
    assert all(0.018 < p.std() < 0.022 for p in weights.values()), {n: p.std() for n, p in weights.items()}
    gains = torch.cat([m.weight for m in model.modules() if isinstance(m, nn.LayerNorm)])
    assert gains.mean().item() == pytest.approx(1, abs=0.01)
    assert all((p == 0).all() for name, p in model.named_parameters() if name.endswith("bias"))


def test_transformer_of_the_algorithmic_tasks_equals_that_of_torch():
    """Irie et al. 2021 (code): `nn.TransformerEncoder` with post-LN, a final LayerNorm, a causal mask and ascending
    sinusoids. Its attention has biases and no rotary embedding."""
    model = BlockModel(
        "tokens", 22, 26, "softmax-attention", 32, 2, 4, 64, norm="post", final_norm=True, positions="ascending",
        options={"window_size": 1024, "use_rope": False, "bias": True},
    ).double().eval()  # fmt: skip
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) / 4)
    theirs = nn.TransformerEncoder(
        nn.TransformerEncoderLayer(32, 4, 64, batch_first=True), 2, nn.LayerNorm(32), enable_nested_tensor=False
    ).double().eval()  # fmt: skip
    positions, *blocks = model.blocks
    mine = [p for block in blocks for p in encoder_order(block)] + [model.norm.weight, model.norm.bias]
    for parameter, value in zip(theirs.parameters(), mine, strict=True):
        parameter.data.copy_(value)
    tokens, mask = torch.randint(22, (2, 9)), nn.Transformer.generate_square_subsequent_mask(9, dtype=torch.float64)
    h = theirs(positions(model.input_embedding(tokens))[0], mask=mask, is_causal=True)
    assert error(model(tokens, 9), model.head(h)) < tolerance(torch.float64).forward


def encoder_order(block):
    """Parameters of a block in the order of `nn.TransformerEncoderLayer`."""
    parts = [block.layer.projection, block.layer.output, block.feed_forward[0], block.feed_forward[3]]
    return [p for part in (*parts, block.layer_norm, block.feed_forward_norm) for p in part.parameters()]


def test_biases_of_attention_start_at_0_as_in_torch():
    layer = make_layer("softmax-attention", 16, num_heads=2, bias=True)
    assert all((linear.bias == 0).all() for linear in (layer.projection, layer.output))


def test_snail_equals_the_formula_of_its_paper():
    """Mishra et al. 2018: A(64, 32), TC(T, 128), A(256, 128), TC(T, 128), A(512, 256), a linear map; T = 6 covers 8."""
    model = SNAILNetwork("features", 69, 5, length=6).double().eval()
    x = torch.randn(2, 6, 69, dtype=torch.float64)
    z, blocks = x, list(model.blocks)
    for sizes in ((64, 32), (2, 4, 8), (256, 128), (2, 4, 8), (512, 256)):
        if len(sizes) == 2:
            block = blocks.pop(0)
            q, k, v = block.projection(z).split([sizes[0], sizes[0], sizes[1]], dim=-1)
            later = torch.ones(6, 6, dtype=torch.bool).triu(1)
            scores = (q @ k.transpose(1, 2) / sizes[0] ** 0.5).masked_fill(later, -torch.inf)
            z = torch.cat([z, scores.softmax(-1) @ v], dim=-1)
            continue
        for dilation in sizes:
            convolution = blocks.pop(0).convolution
            kernel = convolution.weight.unflatten(1, (2, -1)).transpose(1, 2)  # [2 * 128, C, 2]: earlier, now
            past = pad(z.transpose(1, 2), (dilation, 0))
            a, b = conv1d(past, kernel, convolution.bias, dilation=dilation).transpose(1, 2).chunk(2, dim=-1)
            z = torch.cat([z, a.tanh() * b.sigmoid()], dim=-1)
    assert not blocks
    assert error(model(x, 6), model.head(z)) < tolerance(torch.float64).forward
    assert error(model(x, 1), model(x, 6)[:, -1:]) < tolerance(torch.float64).forward


@pytest.mark.parametrize(("kind", "inputs"), [("tokens", (2, 6)), ("pairs", (2, 6, 2))])
def test_snail_accepts_tokens_and_pairs(kind, inputs):
    model = SNAILNetwork(kind, 7, 5, length=6)
    assert model(torch.randint(7, inputs), 2).shape == (2, 2, 5)
    with pytest.raises(InputError, match="length must be a whole number of at least 2"):
        SNAILNetwork(kind, 7, 5, length=1)


@pytest.mark.parametrize("layer", ["delta-rnn-v1", "delta-lstm-v1"])
def test_version_1_drops_before_and_after_its_output_projection(layer):
    """Irie et al. 2021 (code). There is no scale."""
    block = Block(make_layer(layer, 8, num_heads=2, read_dropout=0.5), 8, 16, dropout=0.5)
    assert (block.layer.scale, block.layer.read_dropout.p, block.dropout.p) == (1.0, 0.5, 0.5)
    x, memory = torch.randn(2, 3, 8), block.layer
    torch.manual_seed(1)
    y = memory(x)[0]
    torch.manual_seed(1)
    mask = torch.nn.functional.dropout(torch.ones(2, 3, 8), 0.5)
    reads = []
    memory.output.register_forward_hook(lambda module, inputs, output: reads.append(inputs[0]))
    memory.eval()(x)
    torch.testing.assert_close(y, memory.output(mask * reads[0]))


def test_delta_delta_net_can_learn_its_initial_state():
    layer = make_layer("delta-delta-net", 8, num_heads=2, learned_start=True)
    state = layer.initial_state(3)
    learned = dict(layer.start.named_parameters())
    assert sorted(learned) == ["W_beta", "W_k", "W_q", "W_v"]
    assert all(((p >= 1) & (p <= 2)).all() for p in learned.values())
    assert (state.W == 0).all()
    layer(torch.randn(3, 4, 8))[0].square().sum().backward()
    assert all(p.grad.abs().sum() > 0 for p in learned.values())
    with pytest.raises(InputError, match="initial_state must be left out with learned_start"):
        make_layer("delta-delta-net", 8, num_heads=2, learned_start=True, initial_state="learned")
    stack = make_stack(
        Blocks(layer="delta-delta-net", d_model=8, num_layers=2, num_heads=2, d_ff=16, options={"learned_start": True})
    )
    assert stack[0].layer.start.W_q is not stack[1].layer.start.W_q


def test_descending_positions_cannot_be_carried():
    model, tokens = papers_language_model(), torch.randint(50, (2, 7))
    _, state = model(tokens)
    with pytest.raises(InputError, match="positions='ascending'"):
        model(tokens, state)
    with pytest.raises(InputError, match="positions='ascending'"):
        model(tokens, None, torch.zeros(2, 7, dtype=torch.bool))


def test_ascending_positions_alternate_sines_and_cosines():
    x = torch.zeros(1, 4, 6, dtype=torch.float64)
    want = [[f(t / 10000 ** (2 * i / 6)) for i in range(3) for f in (math.sin, math.cos)] for t in range(4)]
    assert error(Ascending(6).double()(x)[0][0], torch.tensor(want, dtype=x.dtype)) < tolerance(torch.float64).forward
