"""Cells as loops that one would write by hand: batched over `[B, H, ...]`.

They are what the compiled cells are compared with; `check` holds them to the library in float64.
"""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import layer_norm

from fastweights import Cell, scan
from fastweights.problem import pose
from fastweights.testing.samples import Shape, sample_inputs, sample_params

Step = Callable[[Any, Any, Any], tuple[Any, Tensor]]


def mv(W: Tensor, x: Tensor) -> Tensor:
    """`W x` for every member and head."""
    return (W @ x.unsqueeze(-1)).squeeze(-1)


def add_outer(W: Tensor, v: Tensor, k: Tensor) -> Tensor:
    """`W + v k^T`."""
    return torch.addcmul(W, v.unsqueeze(-1), k.unsqueeze(-2))


def write(W: Tensor, k: Tensor, v: Tensor, beta: Tensor) -> Tensor:
    """The delta rule."""
    return add_outer(W, beta.unsqueeze(-1) * (v - mv(W, k)), k)


def sum_(state: Any, x: Any, params: Any) -> tuple[Any, Tensor]:
    W = add_outer(state.W, x.v, x.k)
    return type(state)(W), mv(W, x.q)


def delta(state: Any, x: Any, params: Any) -> tuple[Any, Tensor]:
    W = write(state.W, x.k, x.v, x.beta)
    return type(state)(W), mv(W, x.q)


def gated_delta(state: Any, x: Any, params: Any) -> tuple[Any, Tensor]:
    W = write(x.decay[..., None, None] * state.W, x.k, x.v, x.beta)
    return type(state)(W), mv(W, x.q)


def delta_rnn(state: Any, x: Any, params: Any) -> tuple[Any, Tensor]:
    W = write(state.W, x.k, x.v, x.beta)
    R = write(state.R, x.recurrent_k.softmax(-1), x.recurrent_v, x.recurrent_beta)
    y = mv(W, x.q) + mv(R, state.y.softmax(-1))
    return type(state)(W, R, y), y


def recurrent_delta_net(state: Any, x: Any, params: Any) -> tuple[Any, Tensor]:
    r = state.y.tanh()
    q, k = (x.q + mv(params.R_q, r)).softmax(-1), (x.k + mv(params.R_k, r)).softmax(-1)
    beta = (x.beta + (params.r_beta * r).sum(-1)).sigmoid()
    W = write(state.W, k, x.v + mv(params.R_v, r), beta)
    y = mv(W, q)
    return type(state)(W, y), y


def srwm(state: Any, x: Any, params: Any) -> tuple[Any, Tensor]:
    W_y, W_q, W_k, W_beta = matrices = [start + shift for start, shift in zip(params, state, strict=True)]
    q, k, rates = mv(W_q, x.x).softmax(-1), mv(W_k, x.x).softmax(-1), mv(W_beta, x.x).sigmoid().split(1, -1)
    written = [add_outer(s, rate * mv(A, q - k), k) for s, A, rate in zip(state, matrices, rates, strict=True)]
    return type(state)(*written), mv(W_y, x.x)


def delta_lstm(state: Any, x: Any, params: Any) -> tuple[Any, Tensor]:
    W = write(state.W, x.k, x.v, x.beta)
    R = write(state.R, x.recurrent_k.softmax(-1), x.recurrent_v, x.recurrent_beta)
    i, u, o = (mv(W, x.q) + mv(R, state.h.softmax(-1).unsqueeze(-2))).unbind(-2)
    i = i.sigmoid()
    c = i * u + (1 - i) * state.c
    h = o.sigmoid() * c
    return type(state)(W, R, h, c), h


def fast_weight_rnn(state: Any, x: Any, params: Any) -> tuple[Any, Tensor]:
    A = add_outer(params.decay[:, None, None] * state.A, params.eta[:, None] * state.h, state.h)
    boundary = mv(params.W, state.h) + x.x
    h = boundary.relu()
    for gain, bias in zip(params.gain.unbind(1), params.bias.unbind(1), strict=True):
        h = (layer_norm(boundary + mv(A, h), h.shape[-1:]) * gain + bias).relu()
    return type(state)(A, h), h


STEPS: dict[str, Step] = {
    "sum": sum_,
    "delta": delta,
    "gated-delta": gated_delta,
    "delta-rnn": delta_rnn,
    "recurrent-delta-net": recurrent_delta_net,
    "srwm": srwm,
    "delta-lstm": delta_lstm,
    "fast-weight-rnn": fast_weight_rnn,
}


def loop(cell: Cell, inputs: Any, params: Any) -> Tensor:
    """y of every step, `[B, T, H, ...]`, as users write it: an index `x[:, t]` of every input at every step."""
    return _run(cell, inputs, params, (cell.Inputs(*(x[:, t] for x in inputs)) for t in range(inputs[0].shape[1])))


def unbound(cell: Cell, inputs: Any, params: Any) -> Tensor:
    """The same, with the inputs cut into steps once."""
    return _run(cell, inputs, params, map(cell.Inputs, *(x.unbind(1) for x in inputs)))


def _run(cell: Cell, inputs: Any, params: Any, steps: Iterable[Any]) -> Tensor:
    state = pose(cell, inputs, None, params, None).state
    outputs = []
    for x in steps:
        state, y = STEPS[cell.name](state, x, params)
        outputs.append(y)
    return torch.stack(outputs, dim=1)


LOOPS = {"eager loop": loop, "eager loop, unbound": unbound}


def check() -> None:
    """Every loop equals the library, in float64."""
    for name in STEPS:
        cell, shape = Cell.named(name), Shape(2, 5, 3, 4, 4)
        inputs, params = sample_inputs(cell, shape), sample_params(cell, shape)
        want, _ = scan(cell, inputs, params=params, backend="reference")
        for run in LOOPS.values():
            torch.testing.assert_close(run(cell, inputs, params), want)
