"""Models with the sizes of the papers have the papers' numbers of parameters."""

import math

import pytest
import torch
from torch import nn

from fastweights.layers import make_layer
from fastweights.models.block import Block
from fastweights.models.language_model import LanguageModel
from fastweights.models.snail_network import SNAILNetwork
from fastweights.recipes.ba2016 import table_2
from fastweights.registry import MODELS

WORDS, CUTOFFS = 267_735, (20_000, 40_000, 200_000)


def count(*modules):
    return sum(p.numel() for module in modules for p in module.parameters())


@pytest.mark.parametrize(
    ("layer", "d_model", "millions"),
    [
        ("softmax-attention", 128, 44.02),
        ("performer", 128, 44.02),
        ("linear-attention", 128, 44.02),
        ("delta-net", 128, 44.03),
        ("delta-delta-net", 128, 44.58),
        ("delta-rnn", 128, 44.58),
        ("delta-rnn-v1", 128, 44.58),
        ("delta-lstm", 128, 47.26),
        ("recurrent-delta-net", 128, 44.14),
        ("delta-net", 256, 89.87),
    ],
)
def test_language_models_on_wikitext_have_the_papers_sizes(layer, d_model, millions):
    """Schlag et al. 2021, Tables 2-4; Irie et al. 2021, Table 1: 16 layers, post-LN, a tied adaptive softmax."""
    assert round(count(on_wikitext(layer, d_model, 16)) / 1e6, 2) == millions


@pytest.mark.parametrize(("blocks", "num_layers", "millions"), [(8, 2, 44.29), (11, 1, 44.32)])
def test_language_models_with_delta_mlps_have_the_papers_size(blocks, num_layers, millions):
    """44.3 million with unused outputs of the slow network and fewer blocks than other models."""
    model = on_wikitext("delta-mlp", 128, blocks, {"num_layers": num_layers, "idle": True})
    assert round(count(model) / 1e6, 2) == millions


def test_language_model_with_learned_start_has_the_size_of_the_code():
    """Irie et al. 2021 (code): 44.68 million. Table 1 has 44.58 million without the learned start."""
    model = on_wikitext("delta-delta-net", 128, 16, {"learned_start": True})
    assert round(count(model) / 1e6, 2) == 44.68


def on_wikitext(layer, d_model, num_layers, options=None):
    with torch.device("meta"):
        return LanguageModel(
            WORDS, layer, d_model, num_layers, num_heads=8, d_ff=2048, norm="post", cutoffs=CUTOFFS, options=options
        )


def test_the_parameter_matched_lstm_has_as_many_parameters():
    """An additional row of Ba et al. 2016, Table 2."""
    sizes = []
    for model in ("lstm-as-large", "multi-level-fast-weight-rnn"):
        trial = table_2.trial(model, "50", "cpu")
        sizes.append(count(MODELS.load(trial.model)("features", 49, 10, **trial.model_options)))
    assert math.isclose(*sizes, rel_tol=0.01)


@pytest.mark.parametrize(("d_model", "more"), [(128, 16_384), (256, 32_768)])
def test_rates_have_the_papers_number_of_parameters(d_model, more):
    with torch.device("meta"):
        with_rates, without = (make_layer(name, d_model, num_heads=8) for name in ("delta-net", "linear-attention"))
    assert 16 * (count(with_rates) - count(without)) == more


@pytest.mark.parametrize(
    ("layer", "millions"), [("sum", 3.17), ("delta-net", 3.18), ("delta-rnn", 3.72), ("recurrent-delta-net", 3.23)]
)
def test_models_of_code_execution_have_the_papers_sizes(layer, millions):
    """Irie et al. 2021, Table 2: 4 layers, no LayerNorm after the last."""
    blocks = [Block(make_layer(layer, 256, num_heads=16), 256, 1024) for _ in range(4)]
    assert round(count(nn.Embedding(22, 256), *blocks, nn.Linear(256, 26)) / 1e6, 2) == millions


def vision(channels, size):
    """Layers of a vision encoder: three stages of a convolution and two residual blocks, then a linear map."""
    ends = [channels, 16, 32, 32]
    convolutions = [
        nn.Conv2d(a, b, 3) for stage in range(3) for a, b in [ends[stage : stage + 2], *[[ends[stage + 1]] * 2] * 4]
    ]
    return [*convolutions, nn.Linear(size, 256)]


def agent(channels, size, actions, layer, d_model=128, num_layers=2, **options):
    blocks = [Block(make_layer(layer, d_model, **options), d_model, 512) for _ in range(num_layers)]
    return count(*vision(channels, size), nn.Linear(257, d_model), *blocks, nn.Linear(d_model, actions + 1))


@pytest.mark.parametrize(
    ("layer", "parameters"), [("fake-srwm", 958_544), ("srwm", 967_760), ("no-carry-srwm", 967_760)]
)
def test_agents_of_procgen_have_the_papers_sizes(layer, parameters):
    """Irie et al. 2022, Sec. 4.3: 8 heads of 16."""
    assert agent(3, 2048, 15, layer, num_heads=8) == parameters


def test_agents_of_procgen_have_the_papers_sizes_in_thousands():
    assert round(agent(3, 2048, 15, "sr-delta-net", num_heads=8) / 1e3) == 976
    # The number holds with 4 heads of 32, as for Atari. The SRWM has the paper's 8 heads.
    assert round(agent(3, 2048, 15, "delta-net", num_heads=4) / 1e3) == 1054


@pytest.mark.parametrize(
    ("layer", "millions"), [("sum", 1.52), ("delta-net", 1.52), ("recurrent-delta-net", 1.55), ("delta-rnn", 1.59)]
)
def test_agents_of_atari_have_the_papers_sizes(layer, millions):
    """Irie et al. 2021, Sec. 4.3, with 18 actions."""
    assert round(agent(4, 3872, 18, layer, num_heads=4) / 1e6, 2) == millions


def baseline(channels, size, actions, layer=None):
    """Size of an agent whose policy and value read the encoded observation and reward, or an LSTM of 256 units."""
    memory = [make_layer(layer, 256, num_heads=1, input_size=257)] if layer else []
    return count(*vision(channels, size), *memory, nn.Linear(256 if layer else 257, actions + 1))


def test_baseline_agents_have_the_papers_sizes():
    """Irie et al. 2021, Sec. 4.3 (Atari), and Irie et al. 2022, Sec. 4.3 (ProcGen)."""
    assert round(baseline(4, 3872, 18) / 1e6, 2) == 1.09
    assert round(baseline(4, 3872, 18, "lstm") / 1e6, 2) == 1.62
    assert baseline(3, 2048, 15) == 626_272
    assert round(baseline(3, 2048, 15, "lstm") / 1e6, 3) == 1.154


def test_larger_agent_of_atari_has_the_papers_size():
    larger = agent(4, 3872, 18, "recurrent-delta-net", d_model=256, num_layers=4, num_heads=8)
    assert round(larger / 1e6, 2) == 3.37


@pytest.mark.parametrize("episode", [(5, 1), (5, 5)], ids=["1-shot", "5-shot"])
def test_snail_has_the_number_of_parameters_of_its_formula(episode):
    """Mishra et al. 2018: inputs of 64 features and 5 labels, T = N K + 1 time steps."""
    ways, shots = episode
    steps, channels, want = ways * shots + 1, 64 + ways, 0
    for keys, values, convolved in ((64, 32, True), (256, 128, True), (512, 256, False)):
        want += (channels + 1) * (2 * keys + values)
        channels += values
        for _ in range(math.ceil(math.log2(steps)) if convolved else 0):
            want += (2 * channels + 1) * 2 * 128
            channels += 128
    assert count(SNAILNetwork("features", 64 + ways, ways, steps)) == want + (channels + 1) * ways
