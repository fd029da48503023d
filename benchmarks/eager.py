"""Cells as handwritten loops in PyTorch: tensors `[N, ...]` with N = H B, all batch elements of the first head first.

Benchmarks compare compiled cells with these loops. `check` compares the loops with the library in float64.
"""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import layer_norm

from fastweights import Cell, scan
from fastweights.call.scan_call import scan_call
from fastweights.call.tensors import Tensors
from fastweights.testing.samples import Shape, sample_inputs, sample_params

Step = Callable[[Any, Any, Any, Any], tuple[Any, Tensor]]
"""Function of a state, inputs, and the slow weights per head `[H, ...]` and per element `[N, ...]`."""


def mv(W: Tensor, x: Tensor) -> Tensor:
    """`W x` of every element."""
    return torch.bmm(W, x.unsqueeze(-1)).squeeze(-1)


def shared(R: Tensor, x: Tensor) -> Tensor:
    """`R x` with one matrix per head, `[H, ., .]`. The elements of a head are adjacent, so this is a matrix product."""
    return torch.bmm(x.unflatten(0, (len(R), -1)), R.mT).flatten(0, 1)


def add_outer(W: Tensor, v: Tensor, k: Tensor) -> Tensor:
    """`W + v k^T`."""
    return torch.baddbmm(W, v.unsqueeze(-1), k.unsqueeze(1))


def write(W: Tensor, k: Tensor, v: Tensor, beta: Tensor) -> Tensor:
    """The delta rule."""
    return add_outer(W, beta.unsqueeze(-1) * (v - mv(W, k)), k)


def sum_(state: Any, x: Any, heads: Any, members: Any) -> tuple[Any, Tensor]:
    W = add_outer(state.W, x.v, x.k)
    return type(state)(W), mv(W, x.q)


def delta(state: Any, x: Any, heads: Any, members: Any) -> tuple[Any, Tensor]:
    W = write(state.W, x.k, x.v, x.beta)
    return type(state)(W), mv(W, x.q)


def gated_delta(state: Any, x: Any, heads: Any, members: Any) -> tuple[Any, Tensor]:
    W = write(x.decay[:, None, None] * state.W, x.k, x.v, x.beta)
    return type(state)(W), mv(W, x.q)


def delta_rnn(state: Any, x: Any, heads: Any, members: Any) -> tuple[Any, Tensor]:
    W = write(state.W, x.k, x.v, x.beta)
    R = write(state.R, x.recurrent_k.softmax(-1), x.recurrent_v, x.recurrent_beta)
    y = mv(W, x.q) + mv(R, state.y.softmax(-1))
    return type(state)(W, R, y), y


def recurrent_delta_net(state: Any, x: Any, heads: Any, members: Any) -> tuple[Any, Tensor]:
    r = state.y.tanh()
    q, k = (x.q + shared(heads.R_q, r)).softmax(-1), (x.k + shared(heads.R_k, r)).softmax(-1)
    beta = (x.beta + (members.r_beta * r).sum(-1)).sigmoid()
    W = write(state.W, k, x.v + shared(heads.R_v, r), beta)
    y = mv(W, q)
    return type(state)(W, y), y


def srwm(state: Any, x: Any, heads: Any, members: Any) -> tuple[Any, Tensor]:
    y, q, k, rates = (mv(W, x.x) for W in state)
    q, k, rates = q.softmax(-1), k.softmax(-1), rates.sigmoid().split(1, -1)
    written = [add_outer(W, rate * mv(W, q - k), k) for W, rate in zip(state, rates, strict=True)]
    return type(state)(*written), y


def delta_lstm(state: Any, x: Any, heads: Any, members: Any) -> tuple[Any, Tensor]:
    q, k, v, beta, recurrent_k, recurrent_v, recurrent_beta = (leaf.flatten(0, 1) for leaf in x)
    W = write(state.W.flatten(0, -3), k, v, beta)
    R = write(state.R.flatten(0, -3), recurrent_k.softmax(-1), recurrent_v, recurrent_beta)
    read = mv(R.view(len(state.h), -1, R.shape[-1]), state.h.softmax(-1))
    i, u, o = (mv(W, q).view_as(read) + read).chunk(3, -1)
    i = i.sigmoid()
    c = i * u + (1 - i) * state.c
    h = o.sigmoid() * c
    return type(state)(W, R, h, c), h


def fast_weight_rnn(state: Any, x: Any, heads: Any, members: Any) -> tuple[Any, Tensor]:
    A = add_outer(members.decay[:, None, None] * state.A, members.eta[:, None] * state.h, state.h)
    boundary = shared(heads.W, state.h) + x.x
    h = boundary.relu()
    for gain, bias in zip(members.gain.unbind(1), members.bias.unbind(1), strict=True):
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


def indexed(inputs: Any) -> Iterable[Any]:
    """Time steps of the inputs, by indexing `x[:, t]`, as users write it."""
    return (type(inputs)(*(x[:, t] for x in inputs)) for t in range(inputs[0].shape[1]))


def unbound(inputs: Any) -> Iterable[Any]:
    """Time steps of the inputs, by unbinding once."""
    return map(type(inputs), *(x.unbind(1) for x in inputs))


def loop(cell: Cell, inputs: Any, params: Any, steps: Callable[[Any], Iterable[Any]], step: Step) -> Tensor:
    """Outputs of all time steps, `[B, T, H, ...]`."""
    B, _, H = inputs[0].shape[:3]
    state = scan_call(cell, Tensors(inputs, params=params)).tensors.state
    state = type(state)(*(x.flatten(0, 1) for x in state))
    members = params and type(params)(*(x.repeat_interleave(B, 0) for x in params))
    # The initial state of a self-referential matrix is its slow weights.
    state = type(state)(*members) if cell.name == "srwm" else state
    outputs = []
    for x in steps(type(inputs)(*(x.movedim(2, 0).flatten(0, 1) for x in inputs))):
        state, y = step(state, x, params, members)
        outputs.append(y)
    return torch.stack(outputs, dim=1).unflatten(0, (H, B)).movedim(0, 2)


LOOPS: dict[str, Callable[[Cell, Any, Any], Tensor]] = {
    "eager loop": lambda cell, inputs, params: loop(cell, inputs, params, indexed, STEPS[cell.name]),
    "eager loop, unbound": lambda cell, inputs, params: loop(cell, inputs, params, unbound, STEPS[cell.name]),
}


def with_compiled_step(cell: Cell, inputs: Any, params: Any) -> Tensor:
    """Unbound loop with a step under `torch.compile`. The compilation of the whole loop would take minutes."""
    return loop(cell, inputs, params, unbound, torch.compile(STEPS[cell.name], dynamic=True))


def check() -> None:
    """Asserts that every loop equals the library in float64."""
    for name in STEPS:
        cell, shape = Cell.from_name(name), Shape(2, 5, 3, 4, 4)
        inputs, params = sample_inputs(cell, shape), sample_params(cell, shape)
        want, _ = scan(cell, inputs, params=params, backend="reference")
        for run in LOOPS.values():
            torch.testing.assert_close(run(cell, inputs, params), want)
