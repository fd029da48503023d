"""Each family of memories against mathematics that shares no line with it."""

import numpy as np
import pytest
import torch

from fastweights import Cell, scan
from fastweights.cells.neurons_and_synapses import CELLS, OPERATORS, make_neurons_and_synapses
from fastweights.testing.samples import Shape, sample_inputs, sample_params
from fastweights.testing.tolerance import error, tolerance

SHAPE = Shape(2, 70, 3, 5, 4)
SMALL = Shape(1, 5, 1, 4, 4)
EXACT = tolerance(torch.float64).forward


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
    cell = Cell.from_function(make_neurons_and_synapses((2,), body, synapse, cells))
    x, params = sample_inputs(cell, SMALL), sample_params(cell, SMALL)
    y, state = scan(cell, x, params=params, backend="reference")
    observed = x.x[0, :, 0].numpy()
    numbers = {name: value[0].numpy() for name, value in params._asdict().items()}
    (h, w, p), predictions = gregor(numbers, observed, 2, body, synapse, cells == "private")
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


def gregor(params, observed, hidden, body, synapse, private):
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
                passed = w[i, :, : C // 2] if private and synapse.startswith("lstm") else w[i]
                u = passed * before[:, :1]
                for j in range(N):
                    product = before[i] * before[j, 1]
                    seen = (before[i], before[j], u[j], product, e[turn], e[layer[j]])
                    z = network("synapse", synapse, w[i, j], *seen)
                    new[i, j] = operator(synapse, w[i, j], z, product, lambda z: z, bound)
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
