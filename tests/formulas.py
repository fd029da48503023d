"""The papers' cells as NumPy steps, written from the printed equations and not from the cells.

`FORMULAS` has a step for each cell: (state, x, params) -> (state, y) for one head at one time step. States, inputs and
parameters are dictionaries of float64 arrays with the names that the cell has for them.
"""

from types import SimpleNamespace

import numpy as np

FORMULAS = {}


def formula(step):
    """Adds a step under the name of its cell."""
    FORMULAS[step.__name__.strip("_").replace("_", "-")] = step
    return step


def loop(name, state, x, params):
    """Outputs `[T, ...]` and the last state of one head, for inputs `[T, ...]`."""
    outputs, states, _ = trace(name, state, x, params)
    return outputs, states[-1]


def trace(name, state, x, params):
    """Outputs, states and the rates that the step computes itself, at every time step."""
    s, p, outputs, states, rates = SimpleNamespace(**state), SimpleNamespace(**params), [], [], []
    for t in range(len(next(iter(x.values())))):
        inputs = SimpleNamespace(**{field: values[t] for field, values in x.items()}, rates={})
        s, y = FORMULAS[name](s, inputs, p)
        outputs.append(y)
        states.append(vars(s))
        rates.append(inputs.rates)
    return np.array(outputs), states, rates


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def softmax(x):
    return np.exp(x) / np.exp(x).sum()


def delta_update(W, k, v, beta):
    """Schlag et al. 2021, Eq. 24: w_ij + beta (v_i - sum_l w_il k_l) k_j, entry by entry."""
    old = [sum(W[i, l] * k[l] for l in range(len(k))) for i in range(len(v))]
    return np.array([[W[i, j] + beta * (v[i] - old[i]) * k[j] for j in range(len(k))] for i in range(len(v))])


def normed(x):
    return (x - x.mean()) / np.sqrt(((x - x.mean()) ** 2).mean() + 1e-5)


def positive(x):
    """ELU(x) + 1 over its sum, with the constant of the authors' code."""
    features = np.array([e + 1 if e > 0 else np.exp(e) for e in x])
    return features / (features.sum() + 1e-5)


def state(**fields):
    return SimpleNamespace(**fields)


@formula
def sum_(s, x, p):
    """Schlag et al. 2021, Eqs. 8-11."""
    W = s.W + np.outer(x.v, x.k)
    return state(W=W), W @ x.q


@formula
def delta(s, x, p):
    """Schlag et al. 2021, Eqs. 24-25."""
    W = delta_update(s.W, x.k, x.v, x.beta)
    return state(W=W), W @ x.q


@formula
def gated(s, x, p):
    """Schlag et al. 2021, Eq. 52."""
    W = (1 - x.beta) * s.W + x.beta * np.outer(x.v, x.k)
    return state(W=W), W @ x.q


@formula
def hebbian(s, x, p):
    """Ba et al. 2016, Eq. 1, with any key and value."""
    W = x.decay * s.W + x.eta * np.outer(x.v, x.k)
    return state(W=W), W @ x.q


@formula
def outer_product(s, x, p):
    """Schlag et al. 2021, Eqs. 1-3, with tanh."""
    W = np.tanh(s.W + np.outer(x.v, x.k))
    return state(W=W), W @ x.q


@formula
def linear_attention(s, x, p):
    """Schlag et al. 2021, Eqs. 17-19."""
    W, z = s.W + np.outer(x.v, x.k), s.z + x.k
    return state(W=W, z=z), W @ x.q / (z @ x.q + 1e-5)


@formula
def gated_attention(s, x, p):
    """Peng et al. 2021, Sec. 3.2."""
    W = (1 - x.beta) * s.W + x.beta * np.outer(x.v, x.k)
    z = (1 - x.beta) * s.z + x.beta * x.k
    return state(W=W, z=z), W @ x.q / (z @ x.q + 1e-5)


@formula
def attention_delta(s, x, p):
    """Schlag et al. 2021, Eqs. 26-28 with Eqs. 22-24; FACTS 1.4: key / (old sum + 1e-5), rate * old sum."""
    old_sum = s.z @ x.k or 1.0
    key = x.k / (old_sum + 1e-5)
    W = s.W + x.beta * old_sum * np.outer(x.v - s.W @ key, key)
    z = s.z + x.k
    return state(W=W, z=z), W @ x.q / (z @ x.q + 1e-5)


@formula
def half_attention_delta(s, x, p):
    """Schlag et al. 2021, Eq. 24 with the output of Eq. 28."""
    W, z = delta_update(s.W, x.k, x.v, x.beta), s.z + x.k
    return state(W=W, z=z), W @ x.q / (z @ x.q + 1e-5)


@formula
def fast_weight_memory(s, x, p):
    """Schlag et al. 2021 (Learning Associative Inference Using Fast Weight Memory), Eqs. 6-9."""
    W = s.W - np.outer(s.W @ x.k, x.k) + np.outer(x.beta * x.v + (1 - x.beta) * (s.W @ x.k), x.k)
    W = W / (max(np.linalg.norm(W) - 1, 0) + 1)
    return state(W=W), normed(W @ x.q)


@formula
def delta_rnn(s, x, p):
    """Irie et al. 2021, Eq. 12."""
    W = delta_update(s.W, x.k, x.v, x.beta)
    R = delta_update(s.R, softmax(x.recurrent_k), x.recurrent_v, x.recurrent_beta)
    y = W @ x.q + R @ softmax(s.y)
    return state(W=W, R=R, y=y), y


@formula
def delta_rnn_v1(s, x, p):
    """Irie et al. 2021, Eq. 11 with the softmax."""
    W = delta_update(s.W, softmax(x.k), x.v, x.beta)
    R = delta_update(s.R, softmax(x.recurrent_k), x.recurrent_v, x.recurrent_beta)
    y = softmax(W @ softmax(x.q) + R @ s.y)
    return state(W=W, R=R, y=y), y


def gates(s, x, recurrent_query):
    """W, R, and the pre-activations R s + z and feed-forward parts z of the gates i, u and o."""
    W = np.array([delta_update(s.W[g], x.k[g], x.v[g], x.beta[g]) for g in range(3)])
    keys = [softmax(k) for k in x.recurrent_k]
    R = np.array([delta_update(s.R[g], keys[g], x.recurrent_v[g], x.recurrent_beta[g]) for g in range(3)])
    z = [W[g] @ x.q[g] for g in range(3)]
    return W, R, [R[g] @ recurrent_query + z[g] for g in range(3)], z


@formula
def delta_lstm(s, x, p):
    """Irie et al. 2021, appendix A.2, version 4."""
    W, R, (i, u, o), _ = gates(s, x, softmax(s.h))
    c = sigmoid(i) * u + (1 - sigmoid(i)) * s.c
    return state(W=W, R=R, h=sigmoid(o) * c, c=c), sigmoid(o) * c


@formula
def delta_lstm_v1(s, x, p):
    """Version 1: sigmoids on all parts; h = softmax(o c) is the recurrent query."""
    W, R, (i, u, o), _ = gates(s, x, s.h)
    c = sigmoid(i) * sigmoid(u) + (1 - sigmoid(i)) * s.c
    h = softmax(sigmoid(o) * c)
    return state(W=W, R=R, h=h, c=c), h


@formula
def delta_lstm_v2(s, x, p):
    """Version 2: version 4 with a sigmoid on u."""
    W, R, (i, u, o), _ = gates(s, x, softmax(s.h))
    c = sigmoid(i) * sigmoid(u) + (1 - sigmoid(i)) * s.c
    return state(W=W, R=R, h=sigmoid(o) * c, c=c), sigmoid(o) * c


@formula
def delta_lstm_v3(s, x, p):
    """Version 3: version 2 with a skip connection from the feed-forward part of u."""
    W, R, (i, u, o), z = gates(s, x, softmax(s.h))
    c = sigmoid(i) * sigmoid(u) + (1 - sigmoid(i)) * s.c
    h = sigmoid(o) * c + z[1]
    return state(W=W, R=R, h=h, c=c), h


@formula
def delta_mlp(s, x, p):
    """FACTS 1.9: LN, f, matrix to 4 K units, f, matrix back, residual; f = ELU + 1 over its sum."""
    up, down, y = [], [], x.q
    for l in range(len(s.up)):
        up.append(delta_update(s.up[l], positive(x.up_k[l]), x.up_v[l], x.up_beta[l]))
        down.append(delta_update(s.down[l], positive(x.down_k[l]), x.down_v[l], x.down_beta[l]))
        hidden = up[l] @ positive(normed(y) * p.gain[l] + p.bias[l])
        y = y + down[l] @ positive(hidden)
    return state(up=np.array(up), down=np.array(down)), y


@formula
def printed_delta_mlp(s, x, p):
    """Irie et al. 2021, Eqs. 13-14."""
    W, y = [], x.q
    for l in range(len(s.W)):
        W.append(delta_update(s.W[l], softmax(x.k[l]), x.v[l], x.beta[l]))
        y = W[l] @ softmax(y)
    return state(W=np.array(W)), y


@formula
def delta_delta_net(s, x, p):
    """Irie et al. 2021, Sec. 3.1: the programmer is one DeltaNet with 3 d + 1 outputs."""
    K, V = len(x.k), len(x.value_v)
    P = np.concatenate([s.W_q, s.W_k, s.W_v, s.W_beta])
    P = delta_update(P, x.k, np.concatenate([x.value_q, x.value_k, x.value_v, [x.value_beta]]), x.beta)
    q, k, v, beta = np.split(P @ x.q, [K, 2 * K, 2 * K + V])
    x.rates = {"beta of W": sigmoid(beta[0])}
    W = delta_update(s.W, positive(k), v, sigmoid(beta[0]))
    W_q, W_k, W_v, W_beta = np.split(P, [K, 2 * K, 2 * K + V])
    return state(W_q=W_q, W_k=W_k, W_v=W_v, W_beta=W_beta, W=W), W @ positive(q)


@formula
def recurrent_delta_net(s, x, p):
    """Irie et al. 2021, Eqs. 15-18, within a head."""
    r = np.tanh(s.y)
    q, k = softmax(x.q + p.R_q @ r), softmax(x.k + p.R_k @ r)
    x.rates = {"beta": sigmoid(x.beta + p.r_beta @ r)}
    W = delta_update(s.W, k, x.v + p.R_v @ r, x.rates["beta"])
    return state(W=W, y=W @ q), W @ q


@formula
def full_recurrent_delta_net(s, x, p):
    """Irie et al. 2021, Eqs. 15-18: the recurrent weights read the outputs of all M memories."""
    M, K = x.q.shape
    V = x.v.shape[1]
    r = np.concatenate([np.tanh(y) for y in s.y])
    W, y = [], []
    for m in range(M):
        keys, values = slice(m * K, m * K + K), slice(m * V, m * V + V)
        q, k = softmax(x.q[m] + p.R_q[keys] @ r), softmax(x.k[m] + p.R_k[keys] @ r)
        beta = sigmoid(x.beta[m] + p.R_beta[m] @ r)
        x.rates["beta"] = x.rates.get("beta", 0) + beta / M
        W.append(delta_update(s.W[m], k, x.v[m] + p.R_v[values] @ r, beta))
        y.append(W[m] @ q)
    return state(W=np.array(W), y=np.array(y)), np.array(y)


def srwm_update(A, q, k, rate):
    """Irie et al. 2022, Eq. 8: A + rate (A q - A k) k^T."""
    return A + rate * np.outer(A @ q - A @ k, k)


def current_matrices(s, p, names):
    """The matrices: the state has their differences from the initial matrices."""
    return {name: getattr(p, name) + getattr(s, name) for name in names}


def shifts(p, matrices):
    return {name: A - getattr(p, name) for name, A in matrices.items()}


@formula
def srwm(s, x, p):
    """Irie et al. 2022, Eqs. 5-8, with separate rates of y, q, k and beta."""
    A = current_matrices(s, p, ["W_y", "W_q", "W_k", "W_beta"])
    y, q, k, rates = A["W_y"] @ x.x, softmax(A["W_q"] @ x.x), softmax(A["W_k"] @ x.x), sigmoid(A["W_beta"] @ x.x)
    x.rates = {name.replace("W", "beta"): rate for name, rate in zip(A, rates, strict=True)}
    after = {name: srwm_update(A[name], q, k, rate) for name, rate in zip(A, rates, strict=True)}
    return state(**shifts(p, after)), y


@formula
def one_rate_srwm(s, x, p):
    """Irie et al. 2022, Eqs. 5-8."""
    A = current_matrices(s, p, ["W_y", "W_q", "W_k", "W_beta"])
    y, q, k, rate = A["W_y"] @ x.x, softmax(A["W_q"] @ x.x), softmax(A["W_k"] @ x.x), sigmoid(A["W_beta"] @ x.x)
    x.rates = {"beta": rate[0]}
    return state(**shifts(p, {name: srwm_update(A[name], q, k, rate) for name in A})), y


@formula
def sr_delta_net(s, x, p):
    """Irie et al. 2022, Sec. 3: an SRWM whose y part has the query, key, value and rate of a DeltaNet."""
    parts = ["P_q", "P_k", "P_v", "P_beta"]
    A = current_matrices(s, p, [*parts, "W_q", "W_k", "W_beta"])
    q, k = softmax(A["W_q"] @ x.x), softmax(A["W_k"] @ x.x)
    rate_y, *others = sigmoid(A["W_beta"] @ x.x)
    rates = dict(zip(["W_q", "W_k", "W_beta"], others, strict=True)) | dict.fromkeys(parts, rate_y)
    fast_q, fast_k, fast_v = softmax(A["P_q"] @ x.x), softmax(A["P_k"] @ x.x), A["P_v"] @ x.x
    x.rates = dict(zip(["beta_y", "beta_q", "beta_k", "beta_beta"], [rate_y, *others], strict=True))
    x.rates["beta"] = sigmoid(A["P_beta"] @ x.x)[0]
    W = delta_update(s.W, fast_k, fast_v, x.rates["beta"])
    after = {name: srwm_update(A[name], q, k, rates[name]) for name in A}
    return state(**shifts(p, after), W=W), W @ fast_q


def inner_loop(A, boundary, gains, biases):
    """Ba et al. 2016, Eqs. 2 and 5: S inner steps with constant fast weights."""
    h = np.maximum(boundary, 0)
    for gain, bias in zip(gains, biases, strict=True):
        h = np.maximum(gain * normed(boundary + A @ h) + bias, 0)
    return h


@formula
def fast_weight_rnn(s, x, p):
    """Ba et al. 2016, Eqs. 1, 2 and 5."""
    A = p.decay * s.A + p.eta * np.outer(s.h, s.h)
    h = inner_loop(A, p.W @ s.h + x.x, p.gain, p.bias)
    return state(A=A, h=h), h


@formula
def multi_level_fast_weight_rnn(s, x, p):
    """Ba et al. 2016, Sec. 4.2: a mark between 0 and 1 interpolates between no step and a full step."""
    A = (1 - x.store) * s.A + x.store * (p.decay * s.A + p.eta * np.outer(s.h, s.h))
    W = (1 - x.integrate) * p.W + x.integrate * p.W_integrate
    h = inner_loop(A, W @ ((1 - x.store) * s.h) + x.x, p.gain, p.bias)
    return state(A=A, h=h), h
