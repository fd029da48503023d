"""Memories of other groups as NumPy steps, written from the equations of their papers, in the form of `formulas`.

If a paper has several equivalent forms, the form here differs from that of the cell.
"""

import numpy as np

from formulas import FORMULAS, formula, sigmoid, softmax, state

__all__ = ["FORMULAS"]


@formula
def nlms(s, x, p):
    """Nagumo and Noda 1967: the error along the direction of the key becomes 1 - beta times as large."""
    direction = x.k / np.linalg.norm(x.k)
    old, target = s.W @ direction, x.v / np.linalg.norm(x.k)
    W = s.W + np.outer(old + x.beta * (target - old) - old, direction)
    return state(W=W), W @ x.q


@formula
def efla(s, x, p):
    """Lei et al. 2025: dW/dt = (v - W k) k^T until time beta, by the eigenvectors of k k^T."""
    lengths, vectors = np.linalg.eigh(np.outer(x.k, x.k))
    lengths = np.maximum(lengths, 1e-300)
    retained = np.exp(-x.beta * lengths)
    gain = (1 - retained) / lengths
    W = (s.W @ vectors * retained + np.outer(x.v, x.k) @ vectors * gain) @ vectors.T
    return state(W=W), W @ x.q


@formula
def residual_delta(s, x, p):
    """Lai et al. 2025: both memories as products with a matrix; W is read before its update and R after it."""
    error = np.clip(x.v - s.W @ x.k, -1, 1)
    kk = np.outer(x.k, x.k)
    W = x.decay * s.W @ (np.eye(len(x.k)) - x.beta * kk) + x.beta * np.outer(x.v, x.k)
    R = x.decay * s.R @ (np.eye(len(x.k)) - x.correction * kk) + x.correction * np.outer(error, x.k)
    return state(W=W, R=R), x.decay * s.W @ x.q + x.correction * R @ x.q


@formula
def recursive_least_squares(s, x, p):
    """Kalman 1960, in information form: precisions are added, and the mean solves the normal equations."""
    ridge, identity = 0.25 + np.log1p(np.exp(p.ridge)), np.eye(len(x.k))
    prior = x.decay**2 * (identity - s.S) + (1 - x.decay**2) * identity
    precision = np.linalg.inv(prior) + x.beta / ridge * np.outer(x.k, x.k)
    evidence = x.decay * s.W @ np.linalg.inv(prior) + x.beta / ridge * np.outer(x.v, x.k)
    W = np.linalg.solve(precision.T, evidence.T).T
    return state(W=W, S=identity - np.linalg.inv(precision)), W @ x.q


@formula
def kalman_linear_attention(s, x, p):
    """Shaj et al. 2026, by means and variances: a prediction, then a correction with the Kalman gain, per number."""
    a = sigmoid(3 + p.decay)
    mean = a * s.information / (1 + s.precision)
    variance = a**2 / (1 + s.precision) + (1 - a**2) * np.exp(p.noise)
    k, certainty = np.broadcast_to(x.k, mean.shape), np.broadcast_to(x.certainty[:, None], mean.shape)
    gain = variance * k * certainty / (1 + variance * k**2 * certainty)
    mean, variance = mean + gain * (x.v[:, None] - k * mean), (1 - gain * k) * variance
    return state(precision=1 / variance - 1, information=mean / variance), mean @ x.q


@formula
def power_retention(s, x, p):
    """Gelada et al. 2025, with keys flattened to all products of two features."""
    k, q = np.kron(x.k, x.k), np.kron(x.q, x.q)
    W = x.decay * s.W.reshape(len(x.v), -1) + np.outer(x.v, k)
    z = x.decay * s.z.ravel() + k
    return state(W=W.reshape(s.W.shape), z=z.reshape(s.z.shape)), W @ q / (z @ q + 1e-5)


@formula
def mixture_of_memories(s, x, p):
    """Du et al. 2025, memory by memory: only the chosen memories change."""
    selected = np.argsort(-x.route)[:2]
    W = s.W.copy()
    for m in (*selected, 4):
        decayed = x.decay[m] * s.W[m]
        W[m] = decayed + x.beta[m] * np.outer(x.v[m] - decayed @ x.k[m], x.k[m])
    weights = softmax(x.route[selected])
    return state(W=W), sum(g * W[m] @ x.q for g, m in zip(weights, selected, strict=True)) + W[4] @ x.q


@formula
def muon(s, x, p):
    """Jordan et al. 2024, on the singular values."""
    S = x.momentum * s.surprise + np.outer(x.v - s.W @ x.k, x.k)
    u, singular, v = np.linalg.svd(S / np.sqrt((S**2).sum() + 1e-6), full_matrices=False)
    for _ in range(3):
        singular = 3.4445 * singular - 4.7750 * singular**3 + 2.0315 * singular**5
    W = x.decay * s.W + x.beta * (u * singular) @ v
    return state(W=W, surprise=S), W @ x.q


@formula
def adam(s, x, p):
    """Kingma and Ba 2015, Algorithm 1, with coefficients that change; the sums of weights correct the bias."""
    g = -np.outer(s.W @ x.k - x.v, x.k)
    m, n = (x.momentum * old + (1 - x.momentum) * new for old, new in ((s.mean, g), (s.weight_of_mean, 1.0)))
    r, w = (
        x.square_momentum * old + (1 - x.square_momentum) * new
        for old, new in ((s.square, g * g), (s.weight_of_square, 1.0))
    )
    W = x.decay * s.W + x.beta * (m / (n + 1e-6)) / np.sqrt(r / (w + 1e-6) + 1e-6)
    return state(W=W, mean=m, square=r, weight_of_mean=n, weight_of_square=w), W @ x.q


@formula
def product_key_memory(s, x, p):
    """Zhao and Jones 2026, slot by slot."""

    def address(halves):
        near = [
            [1 / (((half - key) ** 2).sum() + 1e-3) for key in keys] for half, keys in zip(halves, p.keys, strict=True)
        ]
        weights = [np.array(row) / sum(row) for row in near]
        return np.array([weights[0][i] * weights[1][j] for i in range(8) for j in range(8)])

    a, values = address(x.k), s.values.copy()
    read = sum(a[n] * s.values[n] for n in range(64))
    for n in range(64):
        values[n] += x.beta * a[n] * (x.v - read)
    return state(values=values), address(x.q) @ values


@formula
def backpropamine(s, x, p):
    """Miconi et al. 2019, connection by connection; the last activity is the factor of the columns."""
    units = range(len(x.x))
    total = [sum((p.fixed[i, j] + p.plasticity[i, j] * s.hebb[i, j]) * s.y[j] for j in units) for i in units]
    y = np.tanh(x.x + np.array(total))
    eta = p.effect * np.tanh((p.modulator * y).sum()) + p.offset
    x.rates = {"eta": eta}
    hebb = np.array([[np.clip(s.hebb[i, j] + eta[i] * y[i] * s.y[j], -2, 2) for j in units] for i in units])
    return state(hebb=hebb, y=y), y


@formula
def hopfield_slots(s, x, p):
    """Ramsauer et al. 2021, Eq. 3, over slots as in Zhang et al. 2024."""
    retained, b = x.decay[:, None], np.exp(p.sharpness)
    keys, values = retained * s.keys + (1 - retained) * x.k, retained * s.values + (1 - retained) * x.v
    read = keys.T @ softmax(b * keys @ x.q)
    return state(keys=keys, values=values), values.T @ softmax(b * keys @ read)


@formula
def mamba3(s, x, p):
    """Lahoti et al. 2026 with one complex number per feature: one factor is the rotation and the decay."""
    factor = x.decay * np.exp(-1j * np.pi * np.tanh(x.angle) * x.rate)
    W, last = s.W[0] + 1j * s.W[1], np.outer(s.v, s.k[0] + 1j * s.k[1])
    alpha, beta, gamma = factor, (1 - x.trapezoid) * x.rate * factor, x.trapezoid * x.rate
    W = alpha * W + beta * last + gamma * np.outer(x.v, x.k[0] + 1j * x.k[1])
    y = (W @ np.conj(x.q[0] + 1j * x.q[1])).real
    return state(W=np.stack([W.real, W.imag]), k=x.k, v=x.v), y


@formula
def log_linear_attention(s, x, p):
    """Guo et al. 2025: a binary counter of 6 digits; a carry moves the lower levels into the next free level."""
    number, old = int(s.count), x.decay * s.W
    W = np.concatenate([np.outer(x.v, x.k)[None], old[1:]])
    carried, digits = old[0], number - 1
    level = 1
    while number % 64 and level < 7 and (digits >> (level - 1)) & 1:
        carried, W[level] = carried + old[level], 0
        level += 1
    if number % 64 == 0:  # all digits become 0
        carried, level = old[:7].sum(0), 7
        W[1:7] = 0
        W[7] = old[7] + carried
    else:
        W[level] = carried
    return state(W=W, count=float((number + 1) % 64)), np.einsum("l,lvk,k->v", x.weight, W, x.q)
