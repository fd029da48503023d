"""Memories of other papers compared with independent implementations in float64 NumPy.

A memory that is affine in W has one matrix per time step: W <- W A + U, where A acts on the keys. Here A and U follow
the closed forms of the papers.
"""

import functools

import numpy as np
import pytest
import torch

from fastweights import Cell, inner, scan
from fastweights.cells.atlas import make_atlas
from fastweights.cells.delta_product import make_delta_product
from fastweights.cells.mesa import make_mesa
from fastweights.cells.mlstm import mlstm
from fastweights.cells.short_convolution import make_short_convolution
from fastweights.core.errors import InputError
from fastweights.testing.samples import Shape, sample_inputs, sample_params
from fastweights.testing.tolerance import error, tolerance

EXACT = tolerance(torch.float64).forward
SHAPE = Shape(1, 9, 1, 5, 4)


def run(name):
    """Inputs and slow weights of one sequence and one head as arrays, and the outputs of the reference."""
    cell = Cell.from_function(name)
    x, params = sample_inputs(cell, SHAPE), sample_params(cell, SHAPE)
    y, _ = scan(cell, x, params=params, backend="reference")
    numbers = [record and type(record)(*(leaf.numpy() for leaf in record)) for record in (x, params)]
    inputs = type(x)(*(leaf[0, :, 0] for leaf in numbers[0]))
    return inputs, params and type(params)(*(leaf[0] for leaf in numbers[1])), y[0, :, 0]


def assert_equal(y, want):
    assert error(y, torch.tensor(np.array(want))) < EXACT


def unrolled(transitions, writes, queries):
    """y[t] = sum_s U[s] A[s+1] ... A[t] q[t], term by term."""
    outputs = []
    for t, q in enumerate(queries):
        read, y = q, 0.0
        for s in range(t, -1, -1):
            y = y + writes[s] @ read
            read = transitions[s] @ read
        outputs.append(y)
    return outputs


def outers(a, b):
    return a[:, :, None] * b[:, None, :]


def scalar(x):
    return x[:, None, None]


def diagonals(x):
    return x[:, :, None] * np.eye(x.shape[-1])


I = np.eye(SHAPE.K)


def gla(x, _):
    return diagonals(x.decay), outers(x.v, x.k), x.q


def kda(x, _):
    erase = I - scalar(x.beta) * outers(x.k, x.k)
    return diagonals(x.decay) @ erase, scalar(x.beta) * outers(x.v, x.k), x.q


def gdn2(x, _):
    return diagonals(x.decay) @ (I - outers(x.erase * x.k, x.k)), outers(x.write * x.v, x.k), x.q


def hgrn2(x, _):
    return diagonals(x.decay), outers(x.v, 1 - x.decay), x.q


def rwkv7(x, _):
    return diagonals(x.decay) - outers(x.removed, x.rate * x.removed), outers(x.v, x.k), x.q


def comba(x, params):
    feedback = 1 / (1 + np.exp(-params.feedback))
    erase = feedback * scalar(x.beta) * outers(x.k, x.k)
    return scalar(x.decay) * I - erase, scalar(x.beta) * outers(x.v, x.k), x.q - params.correction * x.k


def delta_product(x, _):
    first, second = (I - scalar(x.beta[:, n]) * outers(x.k[:, n], x.k[:, n]) for n in (0, 1))
    writes = [scalar(x.beta[:, n]) * outers(x.v[:, n], x.k[:, n]) for n in (0, 1)]
    return scalar(x.decay) * first @ second, writes[0] @ second + writes[1], x.q


@pytest.mark.parametrize("form", [gla, kda, gdn2, hgrn2, rwkv7, comba, delta_product], ids=lambda f: f.__name__)
def test_memory_equals_the_matrix_products_of_its_paper(form):
    x, params, y = run(form.__name__)
    assert_equal(y, unrolled(*form(x, params)))


def test_titans_equals_one_block_matrix_for_memory_and_momentum():
    x, _, y = run("titans")
    erase = scalar(x.beta) * outers(x.k, x.k)
    momentum = scalar(x.momentum) * I
    transitions = np.block([[scalar(x.decay) * I - erase, -erase], [momentum, momentum]])
    write = scalar(x.beta) * outers(x.v, x.k)
    assert_equal(y, unrolled(transitions, np.block([[write, write]]), np.pad(x.q, ((0, 0), (0, SHAPE.K)))))


def test_gated_oja_multiplies_the_state_from_the_left():
    x, _, y = run("gated-oja")
    v = x.v / np.maximum(1, np.linalg.norm(x.v, axis=-1, keepdims=True))
    left = (np.eye(SHAPE.V) - scalar(x.beta) * outers(v, v)) @ diagonals(x.decay)
    W, want = np.zeros((SHAPE.V, SHAPE.K)), []
    for t in range(SHAPE.T):
        W = left[t] @ W + x.beta[t] * np.outer(v[t], x.k[t])
        want.append(W @ x.q[t])
    assert_equal(y, want)


def test_longhorn_decays_every_entry_separately():
    """Each entry of W is a sum of writes, each times the decays of all later steps."""
    x, _, y = run("longhorn")
    e = x.beta / (1 + x.beta * np.square(x.k).sum(-1, keepdims=True))
    decay = np.cumprod(1 - outers(e, x.k**2), axis=0)
    W = decay * np.cumsum(outers(e * x.v, x.k) / decay, axis=0)
    assert_equal(y, np.einsum("tvk,tk->tv", W, x.q))


def test_rwkv6_reads_the_current_token_with_its_bonus():
    x, params, y = run("rwkv6")
    before = np.concatenate([np.zeros((1, SHAPE.V, SHAPE.K)), outers(x.v, x.k)[:-1]])
    shifted = np.concatenate([np.ones((1, SHAPE.K)), x.decay[:-1]])
    want = unrolled(diagonals(shifted), before, x.q)
    assert_equal(y, want + x.v * (params.bonus * x.k * x.q).sum(-1, keepdims=True))


def test_mlstm_equals_attention_weighted_by_its_gates():
    """The parallel form without a stabiliser: D[t, s] = f[s+1] ... f[t] exp(i[s])."""
    x, _, y = run("mlstm")
    log_f = np.cumsum(-np.log1p(np.exp(-x.forget)))
    weights = np.tril(np.exp(log_f[:, None] - log_f[None, :] + x.write[None, :])) * (x.q @ x.k.T)
    assert_equal(y, weights @ x.v / np.maximum(np.abs(weights.sum(-1, keepdims=True)), 1))


def test_slstm_equals_its_equations_without_a_stabiliser():
    x, params, y = run("slstm")
    c = n = h = np.zeros(SHAPE.V)
    want = []
    for t in range(SHAPE.T):
        new, write, forget, out = (leaf[t] + R @ h for leaf, R in zip(x, params, strict=True))
        f, i = 1 / (1 + np.exp(-forget)), np.exp(write)
        c, n = f * c + i * np.tanh(new), f * n + i
        h = c / n / (1 + np.exp(-out))
        want.append(h)
    assert_equal(y, want)


def test_selective_scan_decays_by_the_sum_of_its_time_steps():
    x, params, y = run("selective-scan")
    time = np.cumsum(x.dt, axis=0)
    for t in range(SHAPE.T):
        decay = np.exp(-(time[t] - time[: t + 1])[:, :, None] * params.rates)
        W = (decay * outers(x.dt * x.v, x.k)[: t + 1]).sum(0)
        assert_equal(y[t], W @ x.q[t] + params.skip * x.v[t])


def test_linear_recurrence_is_a_sum_of_decayed_inputs():
    x, _, y = run("linear-recurrence")
    decay = np.cumprod(x.decay, axis=0)
    assert_equal(y, decay * np.cumsum(x.v / decay, axis=0))


def test_rwkv4_averages_values_with_its_exponential_weights():
    """The parallel form: the weight of step s < t is e^(k[s] - (t-1-s) w), that of step t is e^(k+u)."""
    x, params, y = run("rwkv4")
    t, s = np.arange(SHAPE.T)[:, None, None], np.arange(SHAPE.T)[None, :, None]
    exponents = np.where(s < t, x.k - (t - 1 - s) * np.exp(params.decay), x.k + params.bonus)
    weights = np.exp(exponents) * (s <= t)
    assert_equal(y, (weights * x.v).sum(1) / weights.sum(1))


@pytest.mark.parametrize("width", [2, 4, 7])
def test_short_convolution_equals_a_convolution_per_channel(width):
    x, params, y = run(make_short_convolution(width))
    filtered = [np.convolve(v, weight[::-1])[: SHAPE.T] for v, weight in zip(x.v.T, params.weight.T, strict=True)]
    z = np.stack(filtered, 1) + params.bias
    assert_equal(y, z / (1 + np.exp(-z)))


def test_mlstm_adds_eps_to_the_stored_denominator():
    """eps is added to max(|z . q|, 1) times e^-m, where m is the maximum of the exponents so far."""
    cell = Cell.from_function(functools.partial(mlstm, eps=0.1))
    x = sample_inputs(cell, SHAPE)
    y, _ = scan(cell, x, backend="reference")
    exact, _ = scan(mlstm, x, backend="reference")
    x = type(x)(*(leaf[0, :, 0].numpy() for leaf in x))
    log_f = np.cumsum(-np.log1p(np.exp(-x.forget)))
    exponents = log_f[:, None] - log_f[None, :] + x.write[None, :]
    m = np.maximum(np.where(np.tri(SHAPE.T) > 0, exponents, -np.inf).max(1), log_f)
    sums = (np.tril(np.exp(exponents)) * (x.q @ x.k.T)).sum(1)
    denominator = np.maximum(np.abs(sums), 1)
    factor = denominator / (denominator + 0.1 * np.exp(m))
    assert_equal(y[0, :, 0], exact[0, :, 0].numpy() * factor[:, None])


def test_m2rnn_equals_its_equation_on_the_transposed_state():
    x, params, y = run("m2rnn")
    H, want = np.zeros((SHAPE.K, SHAPE.V)), []
    for t in range(SHAPE.T):
        Z = np.tanh(H @ params.R.T + np.outer(x.k[t], x.v[t]))
        H = x.decay[t] * H + (1 - x.decay[t]) * Z
        want.append(x.q[t] @ H)
    assert_equal(y, want)


def test_gated_slot_attention_attends_to_weighted_averages():
    """A slot is an average over time. Each weight is the input gate times all later decays."""
    x, _, y = run("gated-slot-attention")
    retention = np.cumprod(x.decay, axis=0)
    weights = (1 - x.decay)[None] * retention[:, None] / retention[None]
    weights *= np.tril(np.ones((SHAPE.T, SHAPE.T)))[..., None]
    scores = np.einsum("tsm,sk,tk->tm", weights, x.k, x.q)
    attention = np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)
    assert_equal(y, np.einsum("tm,tsm,sv->tv", attention, weights, x.v))


def test_delta_rules_with_equal_gates_are_equal():
    x = sample_inputs(Cell.from_name("gated-delta"), SHAPE)
    wide = x.decay[..., None].expand_as(x.k)
    rates = {"erase": x.beta[..., None].expand_as(x.k), "write": x.beta[..., None].expand_as(x.v)}
    want, _ = scan("gated-delta", x, backend="reference")
    for cell, inputs in {
        "kda": {"decay": wide, "beta": x.beta},
        "gdn2": {"decay": wide, **rates},
    }.items():
        y, _ = scan(cell, Cell.from_name(cell).Inputs(q=x.q, k=x.k, v=x.v, **inputs), backend="reference")
        assert error(y, want) < EXACT, cell
    one = Cell.from_function(make_delta_product(1))
    y, _ = scan(
        one, one.Inputs(x.q, x.k[..., None, :], x.v[..., None, :], x.beta[..., None], x.decay), backend="reference"
    )
    assert error(y, want) < EXACT


def test_two_reflections_of_delta_product_are_a_rotation():
    """A rate of 2 is a reflection. Two reflections rotate W by twice the angle between the keys."""
    cell = Cell.from_name("delta-product")
    angle, shape = 0.3, (1, 1, 1)
    keys = torch.tensor([[1.0, 0.0], [np.cos(angle), np.sin(angle)]], dtype=torch.float64)
    one = torch.ones(shape, dtype=torch.float64)
    start = cell.State(torch.eye(2, dtype=torch.float64)[None, None])
    x = cell.Inputs(
        q=torch.tensor([1.0, 0.0], dtype=torch.float64).expand(*shape, 2),
        k=keys.expand(*shape, 2, 2),
        v=torch.zeros(*shape, 2, 2, dtype=torch.float64),
        beta=2 * one[..., None].expand(*shape, 2),
        decay=one,
    )
    y, _ = scan(cell, x, start, backend="reference")
    want = torch.tensor([np.cos(2 * angle), -np.sin(2 * angle)], dtype=torch.float64)
    assert error(y[0, 0, 0], want) < EXACT


def test_delta_product_needs_at_least_one_step():
    with pytest.raises(InputError, match="steps must be a whole number of at least 1, got 0"):
        make_delta_product(0)


def descent(x, link, slope):
    """Outputs of gradient descent with W = link(A) and the derivative `slope` of the loss."""
    A, want = np.zeros((SHAPE.V, SHAPE.K)), []
    for t in range(SHAPE.T):
        A = x.decay[t] * A - x.beta[t] * np.outer(slope(link(A) @ x.k[t] - x.v[t], t), x.k[t])
        want.append(link(A) @ x.q[t])
    return want


def test_memories_of_miras_equal_hand_derived_gradient_descent():
    x, _, y = run("yaad")
    assert_equal(y, descent(x, lambda A: A, lambda e, t: np.clip(e, -x.threshold[t], x.threshold[t])))
    x, _, y = run("moneta")
    norm = lambda A: A / np.sqrt(max((A**4).sum(), 1e-6))  # noqa: E731
    assert_equal(y, descent(x, norm, lambda e, t: 3 * np.sign(e) * e**2))
    x, _, y = run("memora")
    rows = lambda A: np.exp(A) / np.exp(A).sum(-1, keepdims=True)  # noqa: E731
    assert_equal(y, descent(x, rows, lambda e, t: e))


@pytest.mark.parametrize(
    ("name", "cell"),
    [
        (
            "moneta",
            Cell.from_loss(
                inner.power(3.0), link=inner.scaled(4.0), retention=inner.scalar_decay, decay_before_gradient=False
            ),
        ),
        (
            "memora",
            Cell.from_loss(inner.l2, link=inner.softmax, retention=inner.scalar_decay, decay_before_gradient=False),
        ),
    ],
)
def test_memories_of_miras_equal_cells_from_their_losses(name, cell):
    x = sample_inputs(Cell.from_name(name), SHAPE)
    want, _ = scan(name, x, backend="reference")
    assert error(scan(cell, cell.Inputs(*x), backend="reference")[0], want) < EXACT


def test_ttt_mlp_equals_training_by_autograd():
    """Autograd differentiates PyTorch's LayerNorm and GELU."""
    cell = Cell.from_name("ttt-mlp")
    x, params = sample_inputs(cell, SHAPE), sample_params(cell, SHAPE)
    y, _ = scan(cell, x, params=params, backend="reference")
    weights = [leaf[0].clone() for leaf in params]

    def read(up, down, k):
        return k + torch.nn.functional.layer_norm(down @ torch.nn.functional.gelu(up @ k), (SHAPE.K,), eps=1e-3)

    for t in range(SHAPE.T):
        q, k, v, beta = (leaf[0, t, 0] for leaf in x)
        weights = [W.detach().requires_grad_() for W in weights]
        gradients = torch.autograd.grad((read(*weights, k) - v).square().sum() / 2, weights)
        weights = [W - beta / 10 * gradient for W, gradient in zip(weights, gradients, strict=True)]
        assert error(y[0, t, 0], read(*weights, q)) < EXACT


def test_mesa_with_as_many_steps_as_features_is_ridge_regression():
    """Ridge regression over all time steps at once: LAPACK solves the normal equations."""
    x, params, y = run(make_mesa(SHAPE.K))
    ridge = np.diag(0.25 + np.log1p(np.exp(params.ridge)))
    retention = np.cumprod(x.decay)
    want = []
    for t in range(SHAPE.T):
        weights = x.beta[: t + 1] * retention[t] / retention[: t + 1]
        keys, values = x.k[: t + 1], x.v[: t + 1]
        G, W = (keys * weights[:, None]).T @ keys, (values * weights[:, None]).T @ keys
        want.append(W @ np.linalg.solve(G + ridge, x.q[t]))
    assert error(y, torch.tensor(np.array(want))) < 1e-7  # Mesa stops at a squared residual of 1e-12


def test_mesa_is_near_the_solution_with_its_default_steps():
    cell, exact = Cell.from_name("mesa"), Cell.from_function(make_mesa(SHAPE.K))
    x, params = sample_inputs(cell, SHAPE), sample_params(cell, SHAPE)
    near, want = (scan(c, x, params=params, backend="reference")[0] for c in (cell, exact))
    assert error(near, want) < 1e-2


def test_atlas_follows_the_gradient_over_its_window():
    x, _, y = run("atlas")
    W, S, want = np.zeros((SHAPE.V, SHAPE.K)), np.zeros((SHAPE.V, SHAPE.K)), []
    for t in range(SHAPE.T):
        window = slice(max(0, t - 3), t + 1)
        errors = x.v[window] - x.k[window] @ W.T
        S = x.momentum[t] * S + np.einsum("i,iv,ik->vk", x.gate[window], errors, x.k[window])
        u, singular, v = np.linalg.svd(S / np.sqrt((S**2).sum() + 1e-6), full_matrices=False)
        for _ in range(2):
            singular = 3.4445 * singular - 4.7750 * singular**3 + 2.0315 * singular**5
        W = x.decay[t] * W + x.beta[t] * (u * singular) @ v
        want.append(W @ x.q[t])
    assert_equal(y, want)


def test_atlas_over_one_token_without_newton_schulz_equals_titans():
    cell, titans = Cell.from_function(make_atlas(1, 0)), Cell.from_name("titans")
    x = sample_inputs(titans, SHAPE)._replace(beta=torch.full((1, SHAPE.T, 1), 0.3, dtype=torch.float64))
    want, _ = scan(titans, x, backend="reference")
    inputs = cell.Inputs(x.q, x.k, x.v, x.decay, x.momentum, gate=torch.ones_like(x.beta), beta=x.beta)
    assert error(scan(cell, inputs, backend="reference")[0], want) < EXACT


def test_hope_equals_its_self_modifying_matrix_recurrence():
    x, params, y = run("hope")
    K, M, want = SHAPE.K, params.M, []
    unit = lambda z: z / np.sqrt((z**2).sum() + 1e-6)  # noqa: E731
    for t in range(SHAPE.T):
        projected = M @ x.x[t]
        k, v = unit(projected[K : 2 * K]), unit(projected[2 * K : 3 * K])
        eta, alpha = 0.5 / (1 + np.exp(-projected[-2])), 1 / (1 + np.exp(-projected[-1] - 3))
        M = M @ (alpha * np.eye(K) - 2 * eta * np.outer(k, k) + eta * np.outer(v, k))
        want.append(M[:K] @ x.q[t])
    assert_equal(y, want)


def test_neural_turing_machine_equals_its_equations():
    x, _, y = run("neural-turing-machine")
    M, w, want = np.zeros((16, SHAPE.V)), np.eye(16)[0], []
    for t in range(SHAPE.T):
        cosine = M @ x.k[t] / np.sqrt((M**2).sum(-1) * (x.k[t] ** 2).sum() + 1e-2)
        content = np.exp(np.log1p(np.exp(x.strength[t])) * cosine)
        w = x.gate[t] * content / content.sum() + (1 - x.gate[t]) * w
        shift = np.exp(x.shift[t]) / np.exp(x.shift[t]).sum()
        w = np.array([sum(shift[1 + by] * w[(i - by) % 16] for by in (-1, 0, 1)) for i in range(16)])
        w = (w + 1e-6) ** (1 + np.log1p(np.exp(x.sharpness[t])))
        w = w / w.sum()
        M = M * (1 - np.outer(w, x.erase[t])) + np.outer(w, x.v[t])
        want.append(w @ M)
    assert_equal(y, want)


def test_neural_turing_machine_can_iterate_over_its_slots():
    """With a gate of 0 and a shift by one, the head reads the next slots in order."""
    cell = Cell.from_name("neural-turing-machine")
    slots, T = torch.eye(16, dtype=torch.float64), 5
    start = cell.State(slots[None, None], (slots[3] - slots[0])[None, None])
    zero = torch.zeros(1, T, 1, dtype=torch.float64)
    nothing = torch.zeros(1, T, 1, 16, dtype=torch.float64)
    shift = torch.tensor([-50.0, -50.0, 50.0], dtype=torch.float64).expand(1, T, 1, 3)
    x = cell.Inputs(nothing, nothing, nothing, zero, zero, shift, zero + 3)
    y, _ = scan(cell, x, start, backend="reference")
    assert y[0, :, 0].argmax(-1).tolist() == [4, 5, 6, 7, 8]


def test_slots_of_a_neural_turing_machine_become_different():
    """The first state breaks the symmetry. Equal slots with equal weights would stay equal."""
    cell = Cell.from_name("neural-turing-machine")
    _, last = scan(cell, sample_inputs(cell, SHAPE), backend="reference")
    assert (last.M[0, 0, 1:] - last.M[0, 0, :1]).norm(dim=-1).min() > 0


@pytest.mark.parametrize(("make", "number"), [(make_mesa, 0), (make_atlas, 0)])
def test_mesa_and_atlas_need_at_least_one_step(make, number):
    with pytest.raises(InputError, match=r"must be a whole number of at least 1, got 0"):
        make(number)
