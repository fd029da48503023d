"""Backward passes derived by hand equal autograd through the reference, without shared code.

Each starts at the last step, and subtracts the writes of each step from the matrix on its way.
"""

import torch
from torch import outer

from fastweights import Cell, scan
from fastweights.testing.samples import Shape, sample_inputs, sample_params, sample_state
from fastweights.testing.tolerance import error, tolerance

SHAPE = Shape(1, 12, 1, 5, 4)
BOUND = tolerance(torch.float64).gradient


def autograd(name, shape=SHAPE):
    """A sample, its outputs, and its gradients by autograd for random gradients of the outputs."""
    cell = Cell.from_name(name)
    x, state, params = (draw(cell, shape) for draw in (sample_inputs, sample_state, sample_params))
    leaves = [leaf.requires_grad_() for record in (x, state, params) if record is not None for leaf in record]
    y, last = scan(cell, x, state, params, backend="reference")
    g = torch.randn(y.shape, generator=torch.Generator().manual_seed(7), dtype=y.dtype)
    # Through the outputs alone: the last state has no further gradient.
    gradients = torch.autograd.grad((y * g).sum(), leaves, materialize_grads=True)
    names = [name for record in (x, state, params) if record is not None for name in record._fields]
    steps = {n: leaf.detach()[0, :, 0] for n, leaf in zip(x._fields, x, strict=True)}
    end = {n: leaf.detach()[0, 0] for n, leaf in zip(last._fields, last, strict=True)}
    weights = {} if params is None else {n: p.detach()[0] for n, p in zip(params._fields, params, strict=True)}
    start = type(state)(*(leaf.detach()[0, 0] for leaf in state))
    return steps, end, weights, g[0, :, 0], dict(zip(names, gradients, strict=True)), y.detach()[0, :, 0], start


def delta_backward(W, G, q, k, v, beta, g):
    """The backward pass of one step of the delta rule: gradients of q, k, v, beta and W before the step, and its G."""
    dq = W.T @ g
    G = G + outer(g, q)
    # u = beta (v - W_before k), and k.k turns W k into W_before k.
    before_k = (W @ k - beta * (k @ k) * v) / (1 - beta * (k @ k))
    u = beta * (v - before_k)
    a = G @ k
    dbeta, dv, e = a @ (v - before_k), beta * a, -beta * a
    before = W - outer(u, k)
    dk = G.T @ u + before.T @ e
    return dq, dk, dv, dbeta, before, G + outer(e, k)


def assert_equal(got, want):
    for name, gradient in got.items():
        assert error(gradient, want[name].reshape(gradient.shape)) < BOUND, name


def test_delta_backward_equals_autograd():
    x, end, _, g, want, _, _ = autograd("delta")
    W, G = end["W"], torch.zeros_like(end["W"])
    got = {name: torch.zeros_like(leaf) for name, leaf in x.items()}
    for t in reversed(range(SHAPE.T)):
        step = delta_backward(W, G, *(x[name][t] for name in ("q", "k", "v", "beta")), g[t])
        got["q"][t], got["k"][t], got["v"][t], got["beta"][t], W, G = step
    assert_equal({**got, "W": G}, want)


def softmax_backward(s, ds):
    return s * (ds - s @ ds)


def test_delta_rnn_backward_equals_autograd():
    x, end, _, g, want, y, state = autograd("delta-rnn")
    W, R = end["W"], end["R"]
    G, G_R, carry = torch.zeros_like(W), torch.zeros_like(R), torch.zeros_like(g[0])
    got = {name: torch.zeros_like(leaf) for name, leaf in x.items()}
    for t in reversed(range(SHAPE.T)):
        s = (y[t - 1] if t else state.y).softmax(-1)
        e = g[t] + carry
        step = delta_backward(W, G, *(x[name][t] for name in ("q", "k", "v", "beta")), e)
        got["q"][t], got["k"][t], got["v"][t], got["beta"][t], W, G = step
        key = x["recurrent_k"][t].softmax(-1)
        ds, dk, got["recurrent_v"][t], got["recurrent_beta"][t], R, G_R = delta_backward(
            R, G_R, s, key, x["recurrent_v"][t], x["recurrent_beta"][t], e
        )
        got["recurrent_k"][t] = softmax_backward(key, dk)
        carry = softmax_backward(s, ds)
    assert_equal({**got, "W": G, "R": G_R, "y": carry}, want)


def test_recurrent_delta_net_backward_equals_autograd():
    x, end, p, g, want, y, state = autograd("recurrent-delta-net")
    W, G, carry = end["W"], torch.zeros_like(end["W"]), torch.zeros_like(g[0])
    got = {name: torch.zeros_like(leaf) for name, leaf in (x | p).items()}
    for t in reversed(range(SHAPE.T)):
        r = (y[t - 1] if t else state.y).tanh()
        q, k = ((x[n][t] + p[f"R_{n}"] @ r).softmax(-1) for n in "qk")
        v, beta = x["v"][t] + p["R_v"] @ r, (x["beta"][t] + p["r_beta"] @ r).sigmoid()
        dq, dk, dv, dbeta, W, G = delta_backward(W, G, q, k, v, beta, g[t] + carry)
        dq, dk, dbeta = softmax_backward(q, dq), softmax_backward(k, dk), beta * (1 - beta) * dbeta
        got["q"][t], got["k"][t], got["v"][t], got["beta"][t] = dq, dk, dv, dbeta
        for name, d in {"R_q": dq, "R_k": dk, "R_v": dv}.items():
            got[name] += outer(d, r)
        got["r_beta"] += dbeta * r
        dr = p["R_q"].T @ dq + p["R_k"].T @ dk + p["R_v"].T @ dv + p["r_beta"] * dbeta
        carry = (1 - r**2) * dr
    assert_equal({**got, "W": G, "y": carry}, want)


def srwm_forward(matrices, x):
    q, k = (matrices["W_q"] @ x).softmax(-1), (matrices["W_k"] @ x).softmax(-1)
    return q, k, (matrices["W_beta"] @ x).sigmoid()


def test_srwm_backward_equals_autograd():
    x, _, p, g, want, _, state = autograd("srwm")
    # The backward pass needs q, k and the rates of every step, so the forward pass saves them.
    matrices = {n: start + getattr(state, n) for n, start in p.items()}
    saved = []
    for t in range(SHAPE.T):
        q, k, beta = srwm_forward(matrices, x["x"][t])
        D = {n: A @ q - A @ k for n, A in matrices.items()}
        saved.append((q, k, beta, D))
        matrices = {n: A + b * outer(D[n], k) for (n, A), b in zip(matrices.items(), beta, strict=True)}
    G = {n: torch.zeros_like(A) for n, A in matrices.items()}
    dx = torch.zeros_like(x["x"])
    for t in reversed(range(SHAPE.T)):
        q, k, beta, D = saved[t]
        matrices = {n: A - b * outer(D[n], k) for (n, A), b in zip(matrices.items(), beta, strict=True)}
        dq, dk, dbeta = torch.zeros_like(q), torch.zeros_like(k), torch.zeros_like(beta)
        for i, (n, A) in enumerate(matrices.items()):
            read = G[n] @ k
            dbeta[i] = read @ D[n]
            dD = beta[i] * read
            dk += beta[i] * G[n].T @ D[n] - A.T @ dD
            dq += A.T @ dD
            G[n] = G[n] + outer(dD, q - k)
        before = {"W_y": g[t], "W_q": softmax_backward(q, dq), "W_k": softmax_backward(k, dk)}
        before["W_beta"] = beta * (1 - beta) * dbeta
        for n, d in before.items():
            dx[t] += matrices[n].T @ d
            G[n] = G[n] + outer(d, x["x"][t])
    # The sum of state and parameter has the gradient of both, under one name: one comparison suffices.
    assert_equal({"x": dx, **G}, want)
