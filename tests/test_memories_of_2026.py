"""Properties of newer memories over whole sequences. `formulas_of_2026` has the formulas of their time steps."""

import re
from pathlib import Path

import numpy as np
import pytest
import torch

import test_baselines
import test_memories_of_today
from fastweights import Cell, InputError, scan
from fastweights.cells.atlas import make_atlas
from fastweights.cells.hopfield_slots import make_hopfield_slots
from fastweights.cells.log_linear_attention import make_log_linear_attention
from fastweights.cells.muon import make_muon
from fastweights.testing.samples import Shape, sample_inputs
from fastweights.testing.tolerance import error
from formulas_of_2026 import FORMULAS
from test_memories_of_today import EXACT, SHAPE, assert_equal, run

LONG = SHAPE._replace(T=150)


def outputs(cell, x, **options):
    """Outputs of the reference backend."""
    return scan(cell, x, backend="reference", **options)[0]


def test_every_cell_has_an_oracle():
    """An oracle is a formula or a test that names the cell. `test_oracles` has loops for `neurons-and-synapses`."""
    files = (test_memories_of_today.__file__, test_baselines.__file__)
    text = "".join(Path(file).read_text() for file in files)
    called = {name: rf"(def |make_){name.replace('-', '_')}\(" for name in Cell.names()}
    named = {name for name, pattern in called.items() if f'"{name}"' in text or re.search(pattern, text)}
    assert {*Cell.names()} - {*FORMULAS} - named == {"neurons-and-synapses"}


def test_recursive_least_squares_without_decay_is_ridge_regression():
    """Ridge regression over all time steps at once: LAPACK solves the normal equations."""
    cell = Cell.from_name("recursive-least-squares")
    x = sample_inputs(cell, SHAPE)
    x = x._replace(decay=torch.ones_like(x.decay))
    y = outputs(cell, x, params=cell.Params(torch.tensor([0.3], dtype=torch.float64)))[0, :, 0]
    q, k, v, beta = (leaf[0, :, 0].numpy() for leaf in (x.q, x.k, x.v, x.beta))
    ridge = (0.25 + np.log1p(np.exp(0.3))) * np.eye(SHAPE.K)
    weighted = [(k[: t + 1] * beta[: t + 1, None]).T for t in range(SHAPE.T)]
    want = [v[: t + 1].T @ w.T @ np.linalg.solve(w @ k[: t + 1] + ridge, q[t]) for t, w in enumerate(weighted)]
    assert_equal(y, want)


def test_mamba3_equals_attention_with_rotated_keys_and_queries():
    """The parallel form of the paper: y_t = sum_s weight[t, s] (R_t q_t . R_s k_s) v_s."""
    x, _, y = run("mamba3")
    angles = np.cumsum(np.pi * np.tanh(x.angle) * x.rate[:, None], axis=0)
    rotated = [(z[:, 0] + 1j * z[:, 1]) * np.exp(1j * angles) for z in (x.q, x.k)]
    products = (rotated[0] @ rotated[1].conj().T).real
    retention = np.cumprod(x.decay)
    weights = x.trapezoid * x.rate * retention[:, None] / retention
    carried = (1 - x.trapezoid[1:]) * x.rate[1:] * retention[:, None] / retention[:-1]
    weights[:, :-1] += np.tril(carried, -1)
    assert_equal(y, np.tril(weights) * products @ x.v)


@pytest.mark.parametrize("backend", ["reference", "compiled"])
def test_mamba3_can_compute_parity(backend):
    """Each 1 rotates the state by half a circle, and each 0 leaves it unchanged."""
    cell, bits = Cell.from_name("mamba3"), torch.randint(2, (3, 40, 1)).double()
    one, zero = torch.ones(3, 40, 1, dtype=torch.float64), torch.zeros(3, 40, 1, dtype=torch.float64)
    real = torch.stack([one, zero], dim=-1).unsqueeze(-1)
    start = cell.State(
        torch.tensor([1.0, 0.0], dtype=torch.float64).view(1, 1, 2, 1, 1).expand(3, 1, 2, 1, 1),
        torch.zeros(3, 1, 2, 1, dtype=torch.float64),
        torch.zeros(3, 1, 1, dtype=torch.float64),
    )
    half_circles = 40 * bits.unsqueeze(-1)  # tanh(40) is 1 in float64
    x = cell.Inputs(real, real, zero.unsqueeze(-1), half_circles, one, one, one)
    y, _ = scan(cell, x, start, backend=backend)
    assert error(y[..., 0], 1 - 2 * (bits.cumsum(1) % 2)) < 1e-11


def test_log_linear_attention_weighs_every_token_by_its_level():
    """The hierarchical mask of the paper: the binary digits of a position divide the past into levels."""
    cell = Cell.from_function(make_log_linear_attention(10))
    x = sample_inputs(cell, LONG)
    q, k, v, decay, weight = (leaf[0, :, 0].numpy() for leaf in x)
    log_retention = np.cumsum(np.log(decay))
    want = []
    for t in range(LONG.T):
        end, y = t, weight[t, 0] * (k[t] @ q[t]) * v[t]
        for level in range(1, 10):
            begin = end - (2 ** (level - 1) if t & 2 ** (level - 1) else 0)
            for s in range(begin, end):
                y = y + weight[t, level] * np.exp(log_retention[t] - log_retention[s]) * (k[s] @ q[t]) * v[s]
            end = begin
        assert end == 0
        want.append(y)
    assert error(outputs(cell, x)[0, :, 0], torch.tensor(np.array(want))) < EXACT


def test_last_level_of_log_linear_attention_holds_all_older_tokens():
    """With equal weights of all levels the result is linear attention with a decay, for any length."""
    cell = Cell.from_name("log-linear-attention")
    x = sample_inputs(cell, LONG)
    x = x._replace(weight=torch.ones_like(x.weight))
    hebbian = Cell.from_name("hebbian")
    want = outputs(hebbian, hebbian.Inputs(x.q, x.k, x.v, x.decay, torch.ones_like(x.decay)))
    assert error(outputs(cell, x), want) < EXACT


def test_one_level_of_log_linear_attention_is_refused():
    with pytest.raises(InputError, match="levels must be at least 2, got 1"):
        make_log_linear_attention(1)


def test_nlms_and_efla_equal_the_delta_rule_in_their_limits():
    """NLMS with keys of length 1, and EFLA in the limit of short keys."""
    delta = Cell.from_name("delta")
    x = sample_inputs(delta, SHAPE)
    unit = x._replace(k=x.k / x.k.norm(dim=-1, keepdim=True))
    assert error(outputs("nlms", Cell.from_name("nlms").Inputs(*unit)), outputs(delta, unit)) < EXACT
    short = x._replace(k=x.k / 1e4)
    assert error(outputs("efla", Cell.from_name("efla").Inputs(*short)), outputs(delta, short)) < 1e-6


def test_nlms_and_efla_are_stable_for_long_keys_unlike_the_delta_rule():
    x = sample_inputs(Cell.from_name("delta"), SHAPE._replace(T=200))
    long = x._replace(k=10 * x.k, q=x.q)
    size = {name: outputs(name, Cell.from_name(name).Inputs(*long)).abs().max() for name in ("delta", "nlms", "efla")}
    assert size["delta"] > 1e6
    assert size["nlms"] < 100
    assert size["efla"] < 100


def test_muon_equals_atlas_over_one_token():
    muon, atlas = Cell.from_function(make_muon(5)), Cell.from_function(make_atlas(1, 5))
    x = sample_inputs(muon, SHAPE)
    inputs = atlas.Inputs(x.q, x.k, x.v, x.decay, x.momentum, gate=torch.ones_like(x.beta), beta=x.beta)
    assert error(outputs(muon, x), outputs(atlas, inputs)) < EXACT


def test_hopfield_slots_without_retrieval_equal_gated_slot_attention():
    cell, slots = Cell.from_function(make_hopfield_slots(0)), Cell.from_name("gated-slot-attention")
    x = sample_inputs(slots, SHAPE)
    params = cell.Params(torch.zeros(SHAPE.H, dtype=torch.float64))
    assert error(outputs(cell, cell.Inputs(*x), params=params), outputs(slots, x)) < EXACT


def test_every_retrieval_step_of_hopfield_slots_lowers_the_energy():
    """Ramsauer et al. 2021, Theorem 1. With the keys as values, the output is the query after 1, 2, ... steps."""
    random = torch.Generator().manual_seed(0)
    keys, noise = (torch.randn(1, 1, n, 6, generator=random, dtype=torch.float64) for n in (8, 1))
    start, retention = keys[:, :, 2:3] + noise, torch.ones(1, 1, 1, 8, dtype=torch.float64)
    points = [start[0, 0, 0]]
    for steps in range(5):
        cell = Cell.from_function(make_hopfield_slots(steps))
        x, params = cell.Inputs(start, start, start, retention), cell.Params(torch.zeros(1, dtype=torch.float64))
        points.append(scan(cell, x, cell.State(keys, keys), params, backend="reference")[0][0, 0, 0])
    energies = torch.stack([r @ r / 2 - (keys[0, 0] @ r).logsumexp(0) for r in points])
    assert (energies.diff() < 0).all()


def test_mixture_of_memories_changes_the_selected_memories_only():
    cell = Cell.from_name("mixture-of-memories")
    x = sample_inputs(cell, SHAPE._replace(T=1))
    x = x._replace(route=torch.tensor([0.1, 2.0, -1.0, 0.5], dtype=torch.float64).view(1, 1, 1, 4))
    start = cell.State(torch.randn(1, 1, 5, SHAPE.V, SHAPE.K, dtype=torch.float64))
    _, last = scan(cell, x, start, backend="reference")
    changed = (last.W != start.W).flatten(3).any(-1)[0, 0]
    assert changed.tolist() == [False, True, False, True, True]


def test_kalman_memory_changes_less_with_every_observation():
    """Repeated observations of one value: each changes the estimate less than the one before."""
    cell = Cell.from_name("kalman-linear-attention")
    one = torch.ones(1, 30, 1, 1, dtype=torch.float64)
    params = cell.Params(*(torch.full((1, 1), 10.0, dtype=torch.float64), torch.zeros(1, 1, dtype=torch.float64)))
    y = outputs(cell, cell.Inputs(one, one, one, one), params=params)[0, :, 0, 0]
    steps = y.diff()
    assert (steps > 0).all()
    assert (steps.diff() < 0).all()
    assert y[-1] > 0.95


def test_first_step_of_adam_has_the_size_of_its_rate():
    """The first bias-corrected step is the sign of the gradient times the rate."""
    cell = Cell.from_name("adam")
    x = sample_inputs(cell, Shape(1, 1, 1, 4, 3))
    x = x._replace(v=10 * x.v)
    _, last = scan(cell, x, backend="reference")
    sign = torch.sign(torch.outer(x.v[0, 0, 0], x.k[0, 0, 0]))
    assert error(last.W[0, 0], x.beta[0, 0, 0] * sign) < 1e-4
