"""Each family of memories against mathematics that shares no line with it."""

import re

import numpy as np
import pytest
import torch

from fastweights import Cell, scan
from fastweights.cells.neurons_and_synapses import CELLS, OPERATORS, make_neurons_and_synapses
from fastweights.registry import CELLS as CELL_FILES
from fastweights.registry import RULES
from fastweights.testing.samples import Shape, sample_inputs, sample_params, sample_state
from fastweights.testing.tolerance import error, tolerance
from formulas import loop
from formulas_of_2026 import FORMULAS

SHAPE = Shape(2, 70, 3, 5, 4)
SMALL = Shape(1, 5, 1, 4, 4)
EXACT = tolerance(torch.float64).forward


PAPERS = r"Ba et al\. 2016|Gregor 2020|Schlag et al\. 2021|Irie et al\. 202[12]"


def named_in_a_paper():
    """Cells and rules whose docstring names one of the five papers as the source."""
    parts = [(folder, name) for folder in (CELL_FILES, RULES) for name in folder.names()]
    return {name for folder, name in parts if re.search(PAPERS, folder.describe(name).source)}


def test_every_cell_of_the_papers_has_a_formula():
    # Gregor's neurons have loops over pairs of neurons below.
    assert named_in_a_paper() - {*FORMULAS} == {"neurons-and-synapses"}


@pytest.mark.parametrize("name", FORMULAS)
@pytest.mark.parametrize("start", ["zero", "any"])
def test_cell_equals_its_formula(name, start):
    """Outputs and last states of every head; marks are 0 or 1 from a state of zeros, and else any number between."""
    shape = Shape(2, 9, 2, 5, 4)
    cell = Cell.from_name(name)
    x, params, state = sample_inputs(cell, shape), sample_params(cell, shape), sample_state(cell, shape)
    if start == "zero":
        marks = {
            field: getattr(x, field).round() for field, slot in cell.slots["Inputs"].items() if slot.kind == "control"
        }
        x, state = x._replace(**marks), cell.State(*map(torch.zeros_like, state))
    y, last = scan(cell, x, state, params, backend="reference")
    for b, h in np.ndindex(2, 2):
        outputs, after = loop(name, one_head(state, (b, h)), one_head(x, (b, slice(None), h)), one_head(params, h))
        assert error(y[b, :, h], torch.tensor(outputs)) < EXACT
        for field, want in after.items():
            assert error(getattr(last, field)[b, h], torch.tensor(want)) < EXACT, field


def one_head(record, place):
    """The fields of one head as arrays; none of no record."""
    return {} if record is None else {name: leaf[place].numpy() for name, leaf in record._asdict().items()}


def heads_first(x):
    return [leaf.transpose(1, 2) for leaf in x]


def test_sum_is_masked_attention_without_softmax():
    cell = Cell.from_name("sum")
    x = sample_inputs(cell, SHAPE)
    q, k, v = heads_first(x)
    want = (q @ k.mT).tril() @ v
    assert error(scan(cell, x)[0].transpose(1, 2), want) < EXACT


def test_linear_attention_is_causal_kernel_attention():
    cell = Cell.from_name("linear-attention")
    x = sample_inputs(cell, SHAPE)
    q, k, v = heads_first(x)
    scores = (q @ k.mT).tril()
    want = scores @ v / (scores.sum(-1, keepdim=True) + 1e-5)
    assert error(scan(cell, x)[0].transpose(1, 2), want) < EXACT


def test_delta_is_a_dense_linear_solve():
    """u = beta (v - W k) over all time at once: (I + diag(beta) strictly_lower(K K^T)) U = diag(beta) V."""
    cell = Cell.from_name("delta")
    x = sample_inputs(cell, SHAPE)
    q, k, v, beta = heads_first(x)
    system = torch.eye(SHAPE.T, dtype=torch.float64) + beta[..., None] * (k @ k.mT).tril(-1)
    u = torch.linalg.solve(system, beta[..., None] * v)
    y, state = scan(cell, x)
    assert error(y.transpose(1, 2), (q @ k.mT).tril() @ u) < EXACT
    assert error(state.W, u.mT @ k) < EXACT


def test_decayed_hebbian_is_attention_weighted_by_age():
    cell = Cell.from_name("hebbian")
    x = sample_inputs(cell, SHAPE)
    q, k, v, decay, eta = heads_first(x)
    age = torch.stack([products_after(decay, j) for j in range(SHAPE.T)], dim=-1)
    want = ((q @ k.mT) * age * eta[..., None, :]) @ v
    assert error(scan(cell, x)[0].transpose(1, 2), want) < EXACT


def products_after(decay, j):
    """At every step i the product of the decays after j up to i; 0 before j."""
    before = torch.zeros_like(decay[..., :j])
    return torch.cat([before, torch.ones_like(decay[..., :1]), decay[..., j + 1 :].cumprod(-1)], dim=-1)


def orthonormal_writes(rule):
    """W of v1 at k1 and v2 at k2, after v3 was written to k2 at rate 1/2."""
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


def test_gated_fades_the_others():
    """Schlag et al. 2021, appendix B."""
    W, k1, k2, v = orthonormal_writes("gated")
    assert error(W @ k2, (v[1] + v[2]) / 2) < EXACT
    assert error(W @ k1, v[0] / 2) < EXACT


@pytest.mark.parametrize("cells", CELLS)
@pytest.mark.parametrize("body", OPERATORS)
@pytest.mark.parametrize("synapse", OPERATORS)
def test_neurons_and_synapses_are_the_papers_equations_neuron_by_neuron(body, synapse, cells):
    """Every pair of operators, in loops over pairs of neurons (Gregor 2020, Eqs. 5-18)."""
    check_neurons(body, synapse, cells)


NO_LSTM = [name for name in OPERATORS if not name.startswith("lstm")]


@pytest.mark.parametrize("odd", [False, True])
@pytest.mark.parametrize("body", NO_LSTM)
@pytest.mark.parametrize("synapse", NO_LSTM)
def test_neurons_with_other_components_and_effects_are_the_equations(body, synapse, odd):
    """Any component can transmit and gate, states can have an odd size, and the operator can put out u (Sec. 7)."""
    check_neurons(body, synapse, "private", "product", 2, 0, odd)
    check_neurons(body, synapse, "private", "operator", 0, 3, odd)


@pytest.mark.parametrize("cells", CELLS)
def test_lstm_synapses_can_put_out_their_effect(cells):
    check_neurons("lstm", "lstm", cells, "operator", 0, 2)


def check_neurons(body, synapse, cells, effect="product", transmits=0, gates=1, odd=False):
    """Outputs and the last state against loops over pairs of neurons."""
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
    """The new state of a neuron or a synapse from the output z of its network (Gregor 2020, Sec. 6)."""
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
    """Bodies `[N, C]`, synapses `[N, N, C]` and predictions after all steps, and the predictions of each."""
    inputs = observed.shape[1]
    N, e, bound = inputs + hidden, params["embedding"], 3 if private else np.inf
    layer = [0] * inputs + [1] * hidden
    w = params["start"].transpose(1, 2, 0).copy()
    C = w.shape[-1]
    h, p, predictions = np.zeros((N, C)), np.zeros(inputs), []

    def network(part, name, state, *x):
        """Of an LSTM's state its network sees the hidden half."""
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
                    seen = (before[i], before[j], *[u[j]] * (effect == "product"), product, e[turn], e[layer[j]])
                    z = network("synapse", synapse, w[i, j], *seen)
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


def test_loops_that_one_would_write_by_hand_equal_the_cells(benchmark_script):
    """Those that benchmarks measure: batched by hand, with no word from a cell."""
    benchmark_script("eager").check()
