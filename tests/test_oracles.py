"""Each family of memories compared with independent formulas, and with simpler memories that are special cases."""

import re

import numpy as np
import pytest
import torch

from fastweights import Cell, InputError, scan
from fastweights.cells._layer_norm import standardise
from fastweights.cells.neurons_and_synapses import CELLS, OPERATORS, make_neurons_and_synapses
from fastweights.layers import PeriodicReset, make_layer
from fastweights.registry import CELLS as CELL_FILES
from fastweights.registry import RULES
from fastweights.testing import scan_checks
from fastweights.testing.samples import Shape, sample_inputs, sample_params, sample_reset, sample_state
from fastweights.testing.tolerance import error, tolerance
from formulas import loop
from formulas_of_2026 import FORMULAS

SHAPE = Shape(2, 70, 3, 5, 4)
SMALL = Shape(1, 5, 1, 4, 4)
EXACT = tolerance(torch.float64).forward


PAPERS = r"Ba et al\. 2016|Gregor 2020|Schlag et al\. 2021|Irie et al\. 202[12]"


def cells_of_the_papers():
    """Cells and rules whose docstring names one of the five papers as the source."""
    parts = [(folder, name) for folder in (CELL_FILES, RULES) for name in folder.names()]
    return {name for folder, name in parts if re.search(PAPERS, folder.describe(name).source)}


def test_every_cell_of_the_papers_has_a_formula():
    # The neurons of Gregor have loops over pairs of neurons below.
    assert cells_of_the_papers() - {*FORMULAS} == {"neurons-and-synapses"}


@pytest.mark.parametrize("name", FORMULAS)
@pytest.mark.parametrize("start", ["zero", "any"])
def test_cell_equals_its_formula(name, start):
    """Outputs and last states of every head. Control signals are 0 or 1 with a zero state, else between 0 and 1."""
    shape = Shape(2, 9, 2, 5, 4)
    cell = Cell.from_name(name)
    x, params, state = sample_inputs(cell, shape), sample_params(cell, shape), sample_state(cell, shape)
    if start == "zero":
        signals = {
            field: getattr(x, field).round() for field, slot in cell.slots["Inputs"].items() if slot.kind == "control"
        }
        x, state = x._replace(**signals), cell.State(*map(torch.zeros_like, state))
    y, last = scan(cell, x, state, params, backend="reference")
    for b, h in np.ndindex(2, 2):
        outputs, after = loop(name, one_head(state, (b, h)), one_head(x, (b, slice(None), h)), one_head(params, h))
        assert error(y[b, :, h], torch.tensor(outputs)) < EXACT
        for field, want in after.items():
            assert error(getattr(last, field)[b, h], torch.tensor(want)) < EXACT, field


def one_head(record, place):
    """Fields of one head as arrays; an empty dictionary if there is no record."""
    return {} if record is None else {name: leaf[place].numpy() for name, leaf in record._asdict().items()}


def heads_first(x):
    return [leaf.transpose(1, 2) for leaf in x]


def test_sum_equals_masked_attention_without_softmax():
    cell = Cell.from_name("sum")
    x = sample_inputs(cell, SHAPE)
    q, k, v = heads_first(x)
    want = (q @ k.mT).tril() @ v
    assert error(scan(cell, x)[0].transpose(1, 2), want) < EXACT


def test_linear_attention_equals_causal_kernel_attention():
    cell = Cell.from_name("linear-attention")
    x = sample_inputs(cell, SHAPE)
    q, k, v = heads_first(x)
    scores = (q @ k.mT).tril()
    want = scores @ v / (scores.sum(-1, keepdim=True) + 1e-5)
    assert error(scan(cell, x)[0].transpose(1, 2), want) < EXACT


def test_delta_equals_a_dense_linear_solve():
    """All time steps at once: (I + diag(beta) strictly_lower(K K^T)) U = diag(beta) V with u = beta (v - W k)."""
    cell = Cell.from_name("delta")
    x = sample_inputs(cell, SHAPE)
    q, k, v, beta = heads_first(x)
    system = torch.eye(SHAPE.T, dtype=torch.float64) + beta[..., None] * (k @ k.mT).tril(-1)
    u = torch.linalg.solve(system, beta[..., None] * v)
    y, state = scan(cell, x)
    assert error(y.transpose(1, 2), (q @ k.mT).tril() @ u) < EXACT
    assert error(state.W, u.mT @ k) < EXACT


def test_decayed_hebbian_equals_attention_weighted_by_age():
    cell = Cell.from_name("hebbian")
    x = sample_inputs(cell, SHAPE)
    q, k, v, decay, eta = heads_first(x)
    age = torch.stack([products_after(decay, j) for j in range(SHAPE.T)], dim=-1)
    want = ((q @ k.mT) * age * eta[..., None, :]) @ v
    assert error(scan(cell, x)[0].transpose(1, 2), want) < EXACT


def products_after(decay, j):
    """Products of the decays from j + 1 to i for every time step i; 0 before j."""
    before = torch.zeros_like(decay[..., :j])
    return torch.cat([before, torch.ones_like(decay[..., :1]), decay[..., j + 1 :].cumprod(-1)], dim=-1)


def orthonormal_writes(rule):
    """W with v1 stored at k1 and v2 at k2, after a write of v3 to k2 at rate 1/2."""
    cell = Cell.from_name(rule)
    k1, k2 = torch.linalg.qr(torch.randn(4, 4, dtype=torch.float64)).Q[:2]
    v = torch.randn(3, 5, dtype=torch.float64)
    beta = torch.tensor([1.0, 1.0, 0.5], dtype=torch.float64)
    keys = torch.stack([k1, k2, k2])
    W = torch.outer(v[0], k1) + torch.outer(v[1], k2)
    x = cell.Inputs(*(t[None, 2:, None] for t in (keys, keys, v, beta)))
    _, state = scan(cell, x, cell.State(W[None, None]))
    return state.W[0, 0], k1, k2, v


def test_delta_replaces_one_association_and_keeps_the_others():
    W, k1, k2, v = orthonormal_writes("delta")
    assert error(W @ k2, (v[1] + v[2]) / 2) < EXACT
    assert error(W @ k1, v[0]) < EXACT


def test_gated_rule_decays_the_other_associations():
    """Schlag et al. 2021, appendix B."""
    W, k1, k2, v = orthonormal_writes("gated")
    assert error(W @ k2, (v[1] + v[2]) / 2) < EXACT
    assert error(W @ k1, v[0] / 2) < EXACT


@pytest.mark.parametrize("cells", CELLS)
@pytest.mark.parametrize("body", OPERATORS)
@pytest.mark.parametrize("synapse", OPERATORS)
def test_neurons_and_synapses_equal_loops_over_pairs_of_neurons(body, synapse, cells):
    """Every pair of operators (Gregor 2020, Eqs. 5-18)."""
    check_neurons(body, synapse, cells)


NOT_LSTM = [name for name in OPERATORS if not name.startswith("lstm")]


@pytest.mark.parametrize("odd", [False, True])
@pytest.mark.parametrize("body", NOT_LSTM)
@pytest.mark.parametrize("synapse", NOT_LSTM)
def test_neurons_with_other_components_and_effects_equal_the_loops(body, synapse, odd):
    """Any component can transmit and gate, states can have an odd size, and the operator can return u (Sec. 7)."""
    check_neurons(body, synapse, "private", "product", 2, 0, odd)
    check_neurons(body, synapse, "private", "operator", 0, 3, odd)


@pytest.mark.parametrize("cells", CELLS)
def test_lstm_synapses_with_the_operator_effect_equal_the_loops(cells):
    check_neurons("lstm", "lstm", cells, "operator", 0, 2)


def check_neurons(body, synapse, cells, effect="product", transmits=0, gates=1, odd=False):
    """Asserts that outputs and the last state equal loops over pairs of neurons."""
    cell = Cell.from_function(make_neurons_and_synapses((2,), body, synapse, cells, effect, transmits, gates, odd))
    x, params = sample_inputs(cell, SMALL), sample_params(cell, SMALL)
    y, state = scan(cell, x, params=params, backend="reference")
    observed = x.x[0, :, 0].numpy()
    numbers = {name: value[0].numpy() for name, value in params._asdict().items()}
    (h, w, p), predictions = gregor(numbers, observed, 2, body, synapse, cells == "private", effect, transmits, gates)
    assert error(y[0, :, 0], torch.tensor(predictions)) < EXACT
    for got, want in zip(state, (h.T, w.transpose(2, 0, 1) - params.start[0].numpy(), p), strict=True):
        assert error(got[0, 0], torch.tensor(want)) < EXACT


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def operator(name, state, z, product, plain, bound):
    """New state of a neuron or a synapse from the output z of its network (Gregor 2020, Sec. 6)."""
    if name.startswith("mlp"):
        return np.tanh(z) if name == "mlp-tanh" else plain(z)
    if name == "gated":
        gate, change = np.split(z, 2)
        return (1 - sigmoid(gate)) * state + sigmoid(gate) * (np.tanh(change) + product)
    gate_in, gate_forget, new, gate_out = np.split(z, 4)
    cell = sigmoid(gate_forget) * np.split(state, 2)[1] + sigmoid(gate_in) * np.tanh(new)
    if name == "lstm-id":
        cell = np.clip(cell, -bound, bound)
    squashed = {"lstm": np.tanh, "lstm-sigma": sigmoid, "lstm-id": lambda c: c}[name](cell)
    return np.concatenate([sigmoid(gate_out) * squashed, cell])


def gregor(params, observed, hidden, body, synapse, private, effect, transmits, gates):
    """Last bodies `[N, C]`, synapses `[N, N, C]` and predictions, and the predictions of every time step."""
    inputs = observed.shape[1]
    N, e, bound = inputs + hidden, params["embedding"], 3 if private else np.inf
    layer = [0] * inputs + [1] * hidden
    w = params["start"].transpose(1, 2, 0).copy()
    C = w.shape[-1]
    h, p, predictions = np.zeros((N, C)), np.zeros(inputs), []

    def network(part, name, state, *x):
        """Output of a network. An LSTM reads the hidden half of its state."""
        if name.startswith("lstm"):
            return params[part] @ np.concatenate([state[: C // 2], *x]) + params[f"{part}_bias"]
        inner = np.tanh(params[f"{part}_hidden"] @ np.concatenate([state, *x]) + params[f"{part}_hidden_bias"])
        return params[part] @ inner + params.get(f"{part}_bias", 0)

    for y in observed:
        for i in range(inputs):
            h[i, 0], h[i, -1] = y[i], y[i] - p[i]
        for turn in (1, 0):
            before, new = h.copy(), w.copy()
            for i in (i for i in range(N) if layer[i] == turn):
                half = C // 2 if private and synapse.startswith("lstm") else C
                u = w[i, :, :half] * before[:, transmits : transmits + 1]
                for j in range(N):
                    product = before[i] * before[j, gates]
                    x = (before[i], before[j], *[u[j]] * (effect == "product"), product, e[turn], e[layer[j]])
                    z = network("synapse", synapse, w[i, j], *x)
                    new[i, j] = operator(synapse, w[i, j], z, product, lambda z: z, bound)
                if effect == "operator":
                    u = new[i, :, :half]
                if turn:
                    z = network("body", body, before[i], u.sum(0), e[turn])
                    h[i] = operator(body, before[i], z, np.zeros(C), sigmoid, bound)
                else:
                    h[i] = np.exp(network("input", "mlp", before[i], u.sum(0), e[turn]))
            w = new
        h[:inputs] /= h[:inputs].sum(0)
        p = h[:inputs, 0].copy()
        predictions.append(p)
    return (h, w, p), np.array(predictions)


def test_handwritten_loops_of_the_benchmarks_equal_the_cells(benchmark_script):
    """The loops are batched by hand and use no code of the cells."""
    benchmark_script("eager").check()


CELL, DELTA = Cell.from_name("delta-rnn"), Cell.from_name("delta")
DELTA_RNN_SHAPE = Shape(2, 17, 3, 6, 5)
EXACT_RNN = tolerance(torch.float64).forward


def test_delta_rnn_with_zero_recurrent_rates_equals_deltanet():
    x = sample_inputs(CELL, DELTA_RNN_SHAPE)
    y, _ = scan(CELL, x._replace(recurrent_beta=torch.zeros_like(x.recurrent_beta)))
    want, _ = scan(DELTA, DELTA.Inputs(x.q, x.k, x.v, x.beta))
    assert error(y, want) < EXACT_RNN


def test_first_recurrent_query_of_the_delta_rnn_is_uniform():
    x = sample_inputs(CELL, Shape(1, 1, 1, 6, 5))
    y, state = scan(CELL, x)
    feed_forward, _ = scan(DELTA, DELTA.Inputs(x.q, x.k, x.v, x.beta))
    assert error(y - feed_forward, state.R.mean(-1).unsqueeze(1)) < EXACT_RNN


def test_recurrent_memory_returns_the_value_stored_for_the_last_output():
    """With the softmax of the last output as key and a rate of 1 / |key|^2, R returns the value exactly."""
    x = sample_inputs(CELL, Shape(1, 2, 1, 6, 5))
    _, state = scan(CELL, type(x)(*(leaf[:, :1] for leaf in x)))
    key = state.y.softmax(-1)
    second = type(x)(*(leaf[:, 1:] for leaf in x))
    second = second._replace(recurrent_k=state.y.unsqueeze(1), recurrent_beta=(1 / key.square().sum(-1)).unsqueeze(1))
    y, after = scan(CELL, second, state)
    read = after.W @ second.q[:, 0].unsqueeze(-1)
    assert error(y[:, 0], read.squeeze(-1) + second.recurrent_v[:, 0]) < EXACT_RNN


IDENTITY_SHAPE = Shape(2, 17, 3, 5, 4)
SQUARE = Shape(2, 17, 3, 5, 5)
IDENTITY_DELTA = Cell.from_name("delta")


def zeros(x):
    return type(x)(*map(torch.zeros_like, x))


def positive(x):
    features = torch.nn.functional.elu(x) + 1
    return features / (features.sum(-1, keepdim=True) + 1e-5)


def test_delta_rnn_without_recurrent_rates_equals_deltanet():
    cell = Cell.from_name("delta-rnn")
    x = sample_inputs(cell, IDENTITY_SHAPE)
    y, _ = scan(cell, x._replace(recurrent_beta=torch.zeros_like(x.recurrent_beta)))
    assert error(y, scan(IDENTITY_DELTA, IDENTITY_DELTA.Inputs(x.q, x.k, x.v, x.beta))[0]) < EXACT


def test_delta_rnn_v1_without_recurrent_rates_is_softmax_of_deltanet():
    cell = Cell.from_name("delta-rnn-v1")
    x = sample_inputs(cell, IDENTITY_SHAPE)
    y, _ = scan(cell, x._replace(recurrent_beta=torch.zeros_like(x.recurrent_beta)))
    want, _ = scan(IDENTITY_DELTA, IDENTITY_DELTA.Inputs(x.q.softmax(-1), x.k.softmax(-1), x.v, x.beta))
    assert error(y, want.softmax(-1)) < EXACT


@pytest.mark.parametrize("name", ["recurrent-delta-net", "full-recurrent-delta-net"])
def test_recurrent_deltanet_without_recurrence_is_softmax_deltanet(name):
    cell = Cell.from_name(name)
    x = sample_inputs(cell, IDENTITY_SHAPE)
    y, _ = scan(cell, x, params=zeros(sample_params(cell, IDENTITY_SHAPE)))
    q, k, v, beta = x if name.startswith("recurrent") else (leaf.flatten(2, 3) for leaf in x)
    want, _ = scan(IDENTITY_DELTA, IDENTITY_DELTA.Inputs(q.softmax(-1), k.softmax(-1), v, beta.sigmoid()))
    assert error(y.flatten(2), want.flatten(2)) < EXACT


def test_full_recurrence_over_one_memory_equals_recurrence_per_head():
    full, head = Cell.from_name("full-recurrent-delta-net"), Cell.from_name("recurrent-delta-net")
    x, params = sample_inputs(head, IDENTITY_SHAPE), sample_params(head, IDENTITY_SHAPE)
    one = full.Inputs(*(leaf.unsqueeze(3) for leaf in x))
    y, _ = scan(full, one, params=full.Params(*params[:3], params.r_beta.unsqueeze(1)))
    assert error(y.squeeze(3), scan(head, x, params=params)[0]) < EXACT


def test_delta_lstm_versions_differ_in_their_update():
    """With values of 0 all reads are 0. Then the gates are 1/2, and c depends on the update alone."""
    for version, update in {"delta-lstm": 0.0, "delta-lstm-v2": 0.5, "delta-lstm-v3": 0.5}.items():
        cell = Cell.from_name(version)
        x = sample_inputs(cell, IDENTITY_SHAPE)
        y, _ = scan(cell, x._replace(v=torch.zeros_like(x.v), recurrent_v=torch.zeros_like(x.recurrent_v)))
        halves = 1 - 0.5 ** torch.arange(1, IDENTITY_SHAPE.T + 1, dtype=torch.float64)
        assert error(y, (update * halves / 2)[None, :, None, None].expand_as(y)) < EXACT, version


def test_delta_lstm_with_open_gates_equals_the_delta_rnn():
    """With the gates i and o saturated at 1, c = h = u, the read of W and R of the update."""
    cell, rnn = Cell.from_name("delta-lstm"), Cell.from_name("delta-rnn")
    x = sample_inputs(cell, IDENTITY_SHAPE)
    big = torch.tensor([1e3, 1.0, 1e3], dtype=torch.float64).view(3, 1)
    # A memory with one constant large value: all reads from W_i and W_o are large.
    v = torch.where(big > 1, big, x.v)
    recurrent_v = torch.where(big > 1, 0.0, x.recurrent_v)
    y, _ = scan(cell, x._replace(v=v, recurrent_v=recurrent_v, beta=torch.where(big.squeeze() > 1, 1.0, x.beta)))
    u = [leaf[..., 1, :] if leaf.ndim == 5 else leaf[..., 1] for leaf in x]
    want, _ = scan(rnn, rnn.Inputs(u[0], u[1], u[2], u[3], u[4], u[5], u[6]))
    assert error(y, want) < EXACT


def test_printed_delta_mlp_of_one_layer_equals_deltanet():
    cell = Cell.from_name("printed-delta-mlp")
    x = sample_inputs(cell, SQUARE)
    one = cell.Inputs(x.q, *(leaf[:, :, :, :1] for leaf in x[1:]))
    k, v, beta = (leaf.squeeze(3) for leaf in one[1:])
    y, _ = scan(cell, one)
    assert error(y, scan(IDENTITY_DELTA, IDENTITY_DELTA.Inputs(x.q.softmax(-1), k.softmax(-1), v, beta))[0]) < EXACT


def test_delta_mlp_without_rates_returns_its_query():
    cell = Cell.from_name("delta-mlp")
    x = sample_inputs(cell, IDENTITY_SHAPE)
    off = {name: torch.zeros_like(getattr(x, name)) for name in ("up_beta", "down_beta")}
    assert error(scan(cell, x._replace(**off), params=sample_params(cell, IDENTITY_SHAPE))[0], x.q) < EXACT


def test_delta_delta_net_equals_deltanet_programmed_by_deltanets():
    cell = Cell.from_name("delta-delta-net")
    x = sample_inputs(cell, IDENTITY_SHAPE)
    values = (x.value_q, x.value_k, x.value_v, x.value_beta.unsqueeze(-1))
    q, k, v, beta = (scan(IDENTITY_DELTA, IDENTITY_DELTA.Inputs(x.q, x.k, value, x.beta))[0] for value in values)
    want, _ = scan(IDENTITY_DELTA, IDENTITY_DELTA.Inputs(positive(q), positive(k), v, beta.squeeze(-1).sigmoid()))
    assert error(scan(cell, x)[0], want) < EXACT


def test_half_attention_delta_is_delta_over_the_sum_of_scores():
    cell = Cell.from_name("half-attention-delta")
    x = sample_inputs(cell, IDENTITY_SHAPE)
    scores = torch.einsum("bihk,bjhk->bhij", x.q, x.k).tril().sum(-1).transpose(1, 2).unsqueeze(-1)
    assert error(scan(cell, x)[0], scan(IDENTITY_DELTA, IDENTITY_DELTA.Inputs(*x))[0] / (scores + 1e-5)) < EXACT


def test_attention_delta_with_orthogonal_keys_writes_like_the_sum_rule():
    """The old value at a new key is 0, so the write is beta v k^T up to eps."""
    cell = Cell.from_name("attention-delta")
    x = sample_inputs(cell, Shape(1, 4, 1, 4, 3))
    k = torch.eye(4, dtype=torch.float64)[None, :, None]
    _, state = scan(cell, x._replace(k=k))
    assert error(state.W[0, 0], (x.beta[0, :, 0, None] * x.v[0, :, 0]).mT / (1 + 1e-5)) < EXACT


@pytest.mark.parametrize("name", ["srwm", "one-rate-srwm"])
def test_srwm_without_rates_equals_the_fake_srwm(name):
    cell = Cell.from_name(name)
    x, params = sample_inputs(cell, IDENTITY_SHAPE), sample_params(cell, IDENTITY_SHAPE)
    # A rate is sigmoid(W_beta x). The inputs are positive, so -1000 gives 0.
    y, state = scan(cell, x, params=params._replace(W_beta=torch.full_like(params.W_beta, -1000)))
    assert error(y, torch.einsum("hvk,bthk->bthv", params.W_y, x.x)) < EXACT
    assert all(leaf.abs().max() == 0 for leaf in state)


def test_srwm_with_four_equal_rates_equals_one_rate_srwm():
    four, one = Cell.from_name("srwm"), Cell.from_name("one-rate-srwm")
    x, params = sample_inputs(one, IDENTITY_SHAPE), sample_params(one, IDENTITY_SHAPE)
    # Four rates stay equal if their rows start equal, because all rows get the same writes.
    y, _ = scan(four, four.Inputs(x.x), params=four.Params(*params[:3], params.W_beta.expand(-1, 4, -1)))
    assert error(y, scan(one, x, params=params)[0]) < EXACT


def test_sr_deltanet_without_rates_equals_deltanet():
    cell = Cell.from_name("sr-delta-net")
    x, params = sample_inputs(cell, IDENTITY_SHAPE), sample_params(cell, IDENTITY_SHAPE)
    y, _ = scan(cell, x, params=params._replace(W_beta=torch.full_like(params.W_beta, -1000)))
    q, k, v, beta = (torch.einsum("hvk,bthk->bthv", P, x.x) for P in params[:4])
    want, _ = scan(IDENTITY_DELTA, IDENTITY_DELTA.Inputs(q.softmax(-1), k.softmax(-1), v, beta.squeeze(-1).sigmoid()))
    assert error(y, want) < EXACT


def test_srwm_with_a_reset_at_every_step_uses_its_initial_weights():
    torch.manual_seed(0)
    layer = make_layer("no-carry-srwm", 8, num_heads=2, period=1).double()
    x = torch.randn(2, 9, 8, dtype=torch.float64)
    W = layer.layer.slow_weights.W_y
    want = layer.layer.output(torch.einsum("hvk,bthk->bthv", W, x.unflatten(-1, (2, 4))).flatten(2))
    assert error(layer(x)[0], want) < EXACT


def test_reset_every_counts_from_the_last_reset():
    layer = make_layer("delta", 8, num_heads=2).double()
    x, reset = torch.randn(1, 12, 8, dtype=torch.float64), torch.zeros(1, 12, dtype=torch.bool)
    reset[:, 5] = True
    signals = torch.zeros_like(reset)
    signals[:, [0, 3, 5, 8, 11]] = True
    assert error(PeriodicReset(layer, 3)(x, reset=reset)[0], layer(x, reset=signals)[0]) < EXACT


def test_fast_weight_rnn_with_a_rate_of_0_equals_a_plain_rnn():
    cell = Cell.from_name("fast-weight-rnn")
    x, params = sample_inputs(cell, IDENTITY_SHAPE), sample_params(cell, IDENTITY_SHAPE)
    y, _ = scan(cell, x, params=params._replace(eta=torch.zeros_like(params.eta)))
    h = torch.zeros_like(x.x[:, 0])
    for t in range(IDENTITY_SHAPE.T):
        boundary = torch.einsum("hvk,bhk->bhv", params.W, h) + x.x[:, t]
        h = (standardise(boundary) * params.gain[:, -1] + params.bias[:, -1]).relu()
        assert error(y[:, t], h) < EXACT


def test_multi_level_rnn_that_never_stores_equals_a_plain_rnn():
    cell, plain = Cell.from_name("multi-level-fast-weight-rnn"), Cell.from_name("fast-weight-rnn")
    x, params = sample_inputs(cell, IDENTITY_SHAPE), sample_params(cell, IDENTITY_SHAPE)
    off = torch.zeros_like(x.store)
    y, state = scan(cell, x._replace(store=off, integrate=off), params=params)
    simple = plain.Params(params.W, params.gain, params.bias, params.decay, torch.zeros_like(params.eta))
    assert error(y, scan(plain, plain.Inputs(x.x), params=simple)[0]) < EXACT
    assert state.A.abs().max() == 0
    swapped = params._replace(W=params.W_integrate)
    mine, _ = scan(cell, x._replace(store=off, integrate=off + 1), params=params)
    assert error(mine, scan(cell, x._replace(store=off, integrate=off), params=swapped)[0]) < EXACT


def test_multi_level_layer_stores_at_the_end_of_every_segment():
    layer = make_layer("multi-level-fast-weight-rnn", 12, segment=4, num_heads=2).double()
    x = torch.randn(2, 10, 12, dtype=torch.float64)
    store, integrate = torch.zeros(2, 2, 10, dtype=torch.bool)
    store[:, [4, 8]] = True
    integrate[:, [3, 7]] = True
    assert error(layer(x)[0], layer(x, controls={"store": store, "integrate": integrate})[0]) < EXACT


@pytest.mark.parametrize("steps", [1, 2, 5])
@pytest.mark.parametrize("with_reset", [False, True])
@pytest.mark.parametrize("layer_norm", [False, True])
def test_attention_over_stored_states_equals_the_matrix_form(steps, with_reset, layer_norm):
    """Ba et al. 2016, Eq. 4: outputs, last states and gradients, from an arbitrary state."""
    # Without layer normalisation, large fast weights make the state diverge.
    size, rate = (1.0, 0.5) if layer_norm else (0.1, 0.01)
    options = {"inner_steps": steps, "layer_norm": layer_norm, "rate": rate}
    make = lambda form: make_layer("fast-weight-rnn", 12, num_heads=2, form=form, **options).double()  # noqa: E731
    torch.manual_seed(1)
    layers = [make(form) for form in ("matrix", "attention")]
    layers[1].load_state_dict(layers[0].state_dict())
    x = torch.randn(3, 20, 12, dtype=torch.float64)
    state = sample_state(layers[0].cell, Shape(3, 20, 2, 6, 6))
    state = type(state)(*(size * leaf for leaf in state))
    reset = sample_reset(Shape(3, 20, 2, 6, 6)) if with_reset else None
    results = []
    for layer in layers:
        leaves = [leaf.clone().requires_grad_() for leaf in (x, *state)]
        y, last = layer(leaves[0], type(state)(*leaves[1:]), reset)
        total = y.square().sum() + sum(leaf.square().sum() for leaf in last)
        results.append((y, *last, *torch.autograd.grad(total, [*leaves, *layer.parameters()])))
    for mine, theirs in zip(*results, strict=True):
        assert error(mine, theirs) < tolerance(torch.float64).gradient


def test_fast_weight_memory_has_a_norm_of_at_most_1():
    cell = Cell.from_name("fast-weight-memory")
    x = sample_inputs(cell, IDENTITY_SHAPE)
    _, state = scan(cell, x._replace(v=100 * x.v))
    assert (state.W.flatten(2).norm(dim=-1) <= 1 + 1e-5).all()


def test_keys_of_zeros_leave_the_memory_unchanged():
    """DPFP of a zero vector is zero. The eps of the normaliser prevents 0 / 0."""
    layer = make_layer("delta-net", 8, num_heads=2, feature_map="dpfp-1").double()
    y, state = layer(torch.zeros(1, 3, 8, dtype=torch.float64))
    assert y.abs().max() == 0
    assert state.W.abs().max() == 0


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("fast-weight-rnn", {"inner_steps": 0}, "inner_steps must be a whole number of at least 1"),
        ("fast-weight-rnn", {"decay": 1.1}, "decay must be from 0 to 1"),
        ("fast-weight-rnn", {"rate": -0.5}, "rate must be a finite number of at least 0"),
        ("fast-weight-rnn", {"form": "scan"}, "form must be one of"),
        ("multi-level-fast-weight-rnn", {"segment": 0}, "segment must be a whole number of at least 1"),
        ("delta-mlp", {"num_layers": 0}, "num_layers must be a whole number of at least 1"),
        ("neurons-and-synapses", {"components": 5}, "components must be even"),
        ("neurons-and-synapses", {"components": 1, "body": "mlp"}, "components must be at least 2"),
        ("neurons-and-synapses", {"transmits": 6}, "transmits must be from 0 to 5"),
        ("neurons-and-synapses", {"effect": "sum"}, "effect must be one of operator, product"),
        ("neurons-and-synapses", {"body": "rnn"}, "body must be one of"),
        ("no-carry-srwm", {"period": 0}, "period must be a whole number of at least 1"),
        ("recurrent-delta-net", {"feature_map": "elu"}, "recurrent-delta-net has no argument .feature_map."),
        ("delta-net", {"rate_activation": "tanh"}, "rate activation must be one of sigmoid, twice-sigmoid"),
        ("srwm", {"num_heads": 5}, "num_heads must be a divisor"),
        ("srwm", {"output_size": 5}, "output_size must be a multiple of the 2 heads"),
        ("outer-product", {"activation": "step"}, "activation must be one of"),
        ("delta-rnn-v1", {"activation": "step"}, "activation must be one of"),
        ("delta", {"query": "x"}, "query must be one of input, projection"),
        ("delta", {"query": "input", "key_size": 5}, "key_size must be 12 / 2 with query='input'"),
        ("delta-lstm", {"query": "input"}, "query must be 'projection' for delta-lstm"),
    ],
)
def test_options_out_of_range_are_refused(name, options, message):
    with pytest.raises(InputError, match=message):
        make_layer(name, 12, **{"num_heads": 2, **options})


@pytest.mark.parametrize("body", OPERATORS)
@pytest.mark.parametrize("synapse", OPERATORS)
def test_predictions_of_neurons_are_distributions(body, synapse):
    layer = make_layer("neurons-and-synapses", 6, num_heads=2, inputs=5, body=body, synapse=synapse).double()
    inputs = layer.slow_net(torch.randn(2, 7, 6, dtype=torch.float64))
    p, state = scan(layer.cell, inputs, params=layer.slow_weights(), backend="reference")
    assert error(p.sum(-1), torch.ones_like(p[..., 0])) < EXACT
    # The next prediction has overwritten the observation in the input layer.
    assert error(state.p, p[:, -1]) < EXACT
    assert error(state.h[..., 0, :5], p[:, -1]) < EXACT


@pytest.mark.parametrize(("body", "synapse"), [*zip(OPERATORS, OPERATORS[1:] + OPERATORS[:1], strict=True)])
def test_every_operator_compiles_for_bodies_and_synapses(body, synapse):
    """Bodies and synapses have separate code. Each operator occurs once in each."""
    cell = Cell.from_function(make_neurons_and_synapses((2,), body, synapse))
    arguments = scan_checks.arguments(cell, Shape(2, 4, 1, 2, 2))
    got, want = (scan_checks.results_and_gradients(cell, backend, arguments) for backend in ("compiled", "reference"))
    scan_checks.assert_close(got, want, torch.float64)
