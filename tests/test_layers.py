"""Every layer of the layers folder has every guarantee of the common interface."""

import pytest
import torch
from torch import nn
from torch.utils._pytree import tree_leaves

import my_memories
from fastweights import Cell, InputError
from fastweights.feature_maps.elu import ELU
from fastweights.feature_maps.identity import Identity
from fastweights.feature_maps.tanh import Tanh
from fastweights.layers import FastWeight, FastWeightProgrammer, WithShortConvolution, layer_names, make_layer
from fastweights.models.blocks import Blocks
from fastweights.models.positions.ascending import Ascending
from fastweights.models.stack import make_stack
from fastweights.normalisers.none import none
from fastweights.normalisers.sum import sum as over_sum
from fastweights.testing import checks_in, layer_checks
from fastweights.testing.layer_checks import D
from fastweights.testing.tolerance import error, tolerance
from tiers import base_of, in_tiers

MAKERS = {name: lambda name=name: make_layer(name, D, num_heads=2) for name in layer_names()}
MAKERS |= {
    "convolved delta-net": lambda: WithShortConvolution(make_layer("delta-net", D, num_heads=2), D),
    "two-layer lstm": lambda: make_layer("lstm", D, num_heads=2, num_layers=2),
    "short window": lambda: make_layer("softmax-attention", D, num_heads=2, window_size=5),
    "short memory": lambda: make_layer("transformer-xl", D, num_heads=2, mem_len=5),
    "short snail": lambda: make_layer(
        "snail", D, num_heads=2, length=5, filters=3, key_size=4, value_size=6, window_size=5
    ),
    "one copy": lambda: make_layer("associative-lstm", D, num_heads=2, copies=1),
    "dpfp": lambda: make_layer("delta-net", D, num_heads=2, feature_map="dpfp-2"),
    "favor": lambda: make_layer("linear-attention", D, num_heads=2, feature_map="favor-12"),
    "negative eigenvalues": lambda: make_layer("delta-net", D, num_heads=2, rate_activation="twice-sigmoid"),
    "srwm of softmax": lambda: make_layer("srwm", D, num_heads=2, feature_map="softmax"),
    "srwm reset every 5": lambda: make_layer("no-carry-srwm", D, num_heads=2, period=5),
    "fast-weight RNN, three inner steps": lambda: make_layer("fast-weight-rnn", D, num_heads=2, inner_steps=5),
    "fast-weight RNN without layer norm": lambda: make_layer(
        "fast-weight-rnn", D, num_heads=2, layer_norm=False, decay=0.5, rate=0.01
    ),
    "neurons without a hidden layer": lambda: make_layer("neurons-and-synapses", D, num_layers=0, num_heads=2),
    "programmed by an LSTM": lambda: FastWeightProgrammer(
        make_layer("lstm", D, num_heads=2), make_layer("delta-rnn", D, num_heads=2), D
    ),
    "programmed by an LSTM that sees y": lambda: FastWeightProgrammer(
        make_layer("lstm", D, num_heads=1, input_size=2 * D),
        make_layer("delta", D, num_heads=2),
        D,
        output_feedback=True,
    ),
    "programmed by an MLP": lambda: FastWeightProgrammer(
        nn.Sequential(nn.Linear(D, D), nn.Tanh()), make_layer("delta", D, num_heads=2), D
    ),
    "neurons of an odd size that put out their effect": lambda: make_layer(
        "neurons-and-synapses", D, num_heads=2, components=5, body="mlp", synapse="gated", effect="operator", gates=0
    ),
    "stack of two blocks": lambda: make_stack(
        Blocks(layer="delta-net", d_model=D, num_layers=2, num_heads=2, d_ff=2 * D, conv_size=3)
    ),
    "positions": lambda: Ascending(D),
    "stack with positions": lambda: make_stack(
        Blocks(layer="sum", d_model=D, num_layers=1, num_heads=2, d_ff=D, norm="post", positions="ascending")
    ),
    "one key for all heads": lambda: make_layer(my_memories.sharing, D, num_heads=2),
    "query is the input": lambda: make_layer("delta", D, num_heads=2, query="input"),
    "query is the input, dpfp": lambda: make_layer("delta", D, num_heads=2, query="input", feature_map="dpfp-2"),
    "outer product of sigmoids": lambda: make_layer(
        "outer-product", D, num_heads=2, activation="sigmoid", query="input"
    ),
    "delta RNN with tanh": lambda: make_layer("delta-rnn-v1", D, num_heads=2, activation="tanh"),
    "fake srwm of softmax": lambda: make_layer("fake-srwm", D, num_heads=2, feature_map="softmax"),
    "srwm without a map behind it": lambda: make_layer("srwm", D, num_heads=2, output_size=D),
    "other sizes": lambda: make_layer("gated-delta", D, num_heads=3, key_size=5, value_size=7),
}


CHECKS = [
    pytest.param(check, id=name, marks=[pytest.mark.quick] if name == "whole_equals_split_and_streamed" else [])
    for name, check in checks_in(layer_checks).items()
]


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_guarantee(make, check):
    check(make)


def test_unknown_layer_lists_all_names_and_the_nearest_one():
    with pytest.raises(InputError, match=r"layer must be one of .*delta, .*Did you mean 'delta-net'\?"):
        make_layer("deltanet", D, num_heads=2)


def test_option_of_another_layer_is_refused():
    with pytest.raises(InputError, match="lstm has no argument 'feature_map'"):
        make_layer("lstm", D, num_heads=2, feature_map="elu")


OF_CELLS = sorted({"linear-attention", *Cell.names()})


@pytest.mark.parametrize("name", OF_CELLS)
def test_programmer_with_an_identity_slow_network_equals_the_layer(name):
    layer, x = make_layer(name, D, num_heads=2).eval(), torch.randn(2, 5, D)
    reset = torch.tensor([[False, False, True, False, False], [True, False, False, False, True]])
    y, state = FastWeightProgrammer(nn.Identity(), layer, D)(x, None, reset)
    want, last = layer(x, None, reset)
    assert torch.equal(y, want)
    assert all(map(torch.equal, tree_leaves(state.fast), tree_leaves(last)))


@pytest.mark.parametrize(
    ("name", "feature_map", "qk_norm"),
    [
        ("linear-attention", ELU, none),
        ("fast-weight-memory", Tanh, none),
        ("outer-product", Identity, none),
        ("delta", ELU, over_sum),
    ],
)
def test_generic_layer_uses_the_key_features_of_its_cell(name, feature_map, qk_norm):
    keys = FastWeight(D, 2, Cell.from_name(name)).slow_net.keys
    assert type(keys.feature_map) is feature_map
    assert keys.normalise is qk_norm


def test_a_shared_key_is_projected_once_for_all_heads():
    """The result equals a layer whose heads have equal projections of their own."""
    shared, own = make_layer(my_memories.sharing, 12, num_heads=3), make_layer("delta", 12, num_heads=3)
    size = 4
    assert shared.slow_net.projection.weight.shape == (3 * 2 * size + size + 1, 12)
    parts = shared.slow_net.projection.weight.split([size, size] * 3 + [size, 1])
    v, q, k, beta = (torch.stack(parts[n:6:2]) if n < 2 else parts[n + 4].expand(3, -1, -1) for n in range(4))
    made = {"q": q, "k": k, "v": v, "beta": beta}
    own.slow_net.projection.weight.data = torch.cat([made[n] for n in own.cell.Inputs._fields], 1).flatten(0, 1)
    own.output.load_state_dict(shared.output.state_dict())
    x = torch.randn(2, 7, 12)
    torch.testing.assert_close(shared(x)[0], own(x)[0])


def test_slow_network_with_output_feedback_equals_a_loop():
    """Irie et al. 2021, Eqs. 1-4: the slow network reads [x[t]; y[t-1]], with y = 0 after a reset."""
    slow, fast = nn.Linear(D + D, D), make_layer("delta-net", D, num_heads=2)
    net, x = FastWeightProgrammer(slow, fast, D, output_feedback=True), torch.randn(2, 5, D)
    reset = torch.zeros(2, 5, dtype=torch.bool)
    reset[1, 3] = True
    last, state, want = torch.zeros(2, D), None, []
    for t in range(5):
        last = last * ~reset[:, t, None]
        y, state = fast(slow(torch.cat([x[:, t], last], -1)).unsqueeze(1), state, reset[:, t : t + 1])
        last = y[:, 0]
        want.append(last)
    assert error(net(x, None, reset)[0], torch.stack(want, 1)) < tolerance(torch.float32).forward


@pytest.mark.parametrize("layer", ["delta-net", "softmax-attention"])
def test_num_heads_must_divide_d_model(layer):
    with pytest.raises(InputError, match="num_heads must be a divisor of d_model=16, got 3"):
        make_layer(layer, D, num_heads=3)


COMPILABLE = [
    name for name in layer_names() if name not in ("lstm", "irnn")
]  # torch.compile refuses nn.LSTM and nn.RNN


@pytest.mark.parametrize("name", in_tiers({name: {base_of(name)} for name in COMPILABLE}))
def test_layer_compiles_into_one_graph(name):
    layer = make_layer(name, D, num_heads=2)
    x = torch.randn(2, 9, D)
    torch.compiler.reset()
    compiled = torch.compile(layer, fullgraph=True, backend="eager")
    got, want = (_seeded(run, x) for run in (compiled, layer))
    torch.testing.assert_close(got, want)


@pytest.mark.parametrize("name", in_tiers({name: {base_of(name)} for name in COMPILABLE}))
def test_layer_compiles_into_one_graph_for_all_sizes(name):
    """Every size is symbolic, including the last one of x."""
    layer = make_layer(name, D, num_heads=2)
    torch.compiler.reset()
    compiled = torch.compile(layer, fullgraph=True, dynamic=True, backend="eager")
    for B, T in ((2, 5), (3, 7), (4, 9)):
        x = torch.randn(B, T, D)
        got, want = (_seeded(run, x) for run in (compiled, layer))
        torch.testing.assert_close(got, want)


def _seeded(layer, x):
    """Output of a layer with a fixed seed, for layers with random features."""
    torch.manual_seed(1)
    return layer(x)[0]
