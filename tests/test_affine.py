"""The affine form that the compiler derives, of the library's cells and of user-defined cells."""

import inspect
import re
from pathlib import Path
from typing import Annotated, NamedTuple

import pytest
import torch
from torch import Tensor

import fastweights
from fastweights import Cell, InputError
from fastweights.backends.chunkwise import chunkwise
from fastweights.backends.chunkwise import coefficients as _coefficients
from fastweights.call.scan_call import scan_call
from fastweights.call.tensors import Tensors
from fastweights.compiler.affine.batched import batched
from fastweights.compiler.frontend.lower import lower_forward
from fastweights.compiler.frontend.trace import trace_forward
from fastweights.compiler.op import sizes_of
from fastweights.signature import Accumulator, Key, KeyDecay, Matrix, Rate, TensorSpec, Value
from fastweights.testing import scan_checks
from fastweights.testing.samples import Shape, sample_state
from fastweights.testing.tolerance import error, tolerance

EXACT = tolerance(torch.float64).forward
SHAPE = Shape(1, 3, 1, 5, 4)


def describe(cell: Cell) -> str:
    """The description of the form of a cell."""
    a = scan_checks.arguments(cell, SHAPE)
    return chunkwise.describe(scan_call(cell, Tensors(a.inputs, a.state, a.params)))


FORMS = {
    "sum": "W <- W + v k^T",
    "delta": "W <- W - W e f^T + v k^T",
    "gated-delta": "W <- W a - W e f^T + v k^T",
    "linear-attention": "W and z <- W and z + v k^T",
    "half-attention-delta": "W <- W - W e f^T + v k^T, z <- z + v k^T",
    "attention-delta": "z <- z + v k^T, W <- W - W e f^T + v k^T",
    "gla": "W <- W diag(a) + v k^T",
    "hgrn2": "W <- W diag(a) + v k^T",
    "rwkv6": "W <- W diag(a) + v k^T",
    "kda": "W <- W diag(a) - W e f^T + v k^T",
    "gdn2": "W <- W diag(a) - W e f^T + v k^T",
    "rwkv7": "W <- W diag(a) - W e f^T + v k^T",
    "comba": "W <- W a - W e f^T + v k^T",
    "delta-product": "W <- W a - 2 (W e f^T) + 2 (v k^T)",
    "mlstm": "m <- max(m + a, b), W and z <- W and z a + v k^T",
    "gated-oja": "W^T <- W^T diag(a) - W^T e f^T + v k^T",
    "gated-slot-attention": "keys^T <- keys^T diag(a) + v k^T, values^T <- values^T diag(a) + v k^T",
    "longhorn": "every element of W decays separately",
    "titans": "[W surprise] <- [W surprise] A - [W surprise] e f^T + v k^T",
    "mamba3": "k <- x, v <- x, [W_0 W_1] <- [W_0 W_1] A + 2 (v k^T)",
    "power-retention": "W and z <- W and z a + v k^T (axes of W: rows 0 1, columns 2)",
    "mixture-of-memories": "W <- W a - W e f^T + v k^T (axes of W: groups 0, rows 1, columns 2)",
    "log-linear-attention": "count <- f(count), [W_0 ... W_7] <- [W_0 ... W_7] A + v k^T",
    "adam": "W and mean and square are multiplied by each other, in adam.py:",
    "muon": "W and surprise are multiplied by each other, in _newton_schulz.py:",
    "recursive-least-squares": "S <- f(S) step by step, W <- W a - W e f^T + v k^T",
    "delta-rnn": "W <- W - W e f^T + v k^T, (R, y) <- f(R, y) step by step",
    "srwm": "(W_q, W_k, W_beta) <- f(W_q, W_k, W_beta) step by step, W_y <- W_y - W_y e f^T + v k^T",
    "kalman-linear-attention": "precision is multiplied by itself, in kalman_linear_attention.py:",
    "backpropamine": "hebb and y are compared, in backpropamine.py:",
    "outer-product": "W is passed through tanh, in outer_product.py:",
    "fast-weight-memory": "W is multiplied by itself, in fast_weight_memory.py:",
    "delta-lstm": "(axes of W: groups 0, rows 1, columns 2), (R, h, c) <- f(R, h, c) step by step",
    "recurrent-delta-net": "W and y depend on each other, and W and y are multiplied by each other, in delta.py:",
}


@pytest.mark.parametrize(("name", "expected"), FORMS.items(), ids=FORMS)
def test_form_or_the_reason_against_one(name, expected):
    assert expected in describe(Cell.from_name(name))


@pytest.mark.parametrize("name", Cell.names())
def test_batched_step_equals_the_cell(name):
    """The lowered step of all members, time steps and heads at once equals the cell."""
    cell = Cell.from_name(name)
    a = scan_checks.arguments(cell, Shape(2, 3, 2, 5, 4))
    sizes = sizes_of(cell, [*a.inputs, *a.state, *(a.params or ())])
    step = lower_forward(trace_forward(cell, sizes, torch.float64))
    states = [torch.stack([x, x.flip(0), x / 2], 1) for x in a.state]
    params = [] if a.params is None else [cell.Params(*(x.expand(2, 3, *x.shape) for x in a.params))]
    new, y = torch.vmap(torch.vmap(torch.vmap(cell.step)))(cell.State(*states), a.inputs, *params)
    values = [*step.state.values(), *step.inputs.values(), *step.params.values(), *step.after.values()]
    run = batched([*step.new_state.values(), step.y], values).run
    got = run((2, 3, 2), *states, *a.inputs, *(a.params or ()), *new)
    for mine, theirs in zip(got, (*new, y), strict=True):
        assert error(mine.expand(theirs.shape), theirs) < EXACT


@pytest.mark.parametrize(
    "name", ["gla", "hgrn2", "rwkv6", "kda", "gdn2", "rwkv7", "gated-delta", "delta-product", "gated-oja"]
)
def test_decays_may_be_small_or_zero(name, monkeypatch):
    """Decays from 1 to e^-20 per step, and 0: no division by them, and no overflow of their products."""
    cell = Cell.from_name(name)
    a = scan_checks.arguments(cell, Shape(1, 70, 2, 16, 8))
    decay = torch.exp(-20 * torch.rand_like(a.inputs.decay) ** 3)
    decay[:, 40:45] = decay[:, 40:45].round()
    a = a._replace(inputs=a.inputs._replace(decay=decay), reset=None)
    want = scan_checks.results_and_gradients(cell, "reference", a)
    for size in (16, 32, 64):
        monkeypatch.setattr(_coefficients, "chunk_size", lambda T, K, size=size: size)
        got = scan_checks.results_and_gradients(cell, "chunkwise", a.to(torch.float32))
        scan_checks.assert_close(got, want, torch.float32, size)


# User-defined cells


class One(NamedTuple):
    W: Matrix


class Transposed(NamedTuple):
    S: Annotated[Tensor, TensorSpec("K V", "memory")]


class QKV(NamedTuple):
    q: Key
    k: Key
    v: Value


class Rated(NamedTuple):
    q: Key
    k: Key
    v: Value
    decay: KeyDecay
    beta: Rate


class Head(NamedTuple):
    gamma: Annotated[Tensor, TensorSpec("", "constant")]


def retention(state: Transposed, x: QKV, params: Head) -> tuple[Transposed, Value]:
    """RetNet, keys before values, with one constant decay per head."""
    S = params.gamma * state.S + x.k[:, None] * x.v[None, :]
    return Transposed(S), (x.q @ S) * x.k.shape[0] ** -0.5


def by_einsum(state: One, x: Rated) -> tuple[One, Value]:
    """KDA by einsum, with a gate on the output."""
    W = torch.einsum("vk,k->vk", state[0], x.decay)
    u = x.beta * (x.v - torch.einsum("vk,k->v", W, x.k))
    W = W + torch.einsum("v,k->vk", u, x.k)
    return type(state)(W), torch.einsum("vk,k->v", W, x.q) * torch.sigmoid(x.v)


def shared(state: One, x: Rated) -> tuple[One, Value]:
    """Erases two keys and writes a third at half the rate; reads before and after the write."""
    before = state.W @ x.q
    other = torch.roll(x.k, 1)
    erased = torch.outer(state.W @ x.k, x.k) + torch.outer(state.W @ other, x.decay * x.k)
    W = state.W - 0.5 * x.beta * (erased - torch.outer(x.v, other) / 2)
    return type(state)(W), before + (W @ x.k).tanh() + W @ x.q


class Two(NamedTuple):
    W: Matrix
    M: Matrix


def cascade(state: Two, x: Rated) -> tuple[Two, Value]:
    """The second memory stores the reads of the first, and the output has reads of both."""
    W = state.W + x.beta * torch.outer(x.v - state.W @ x.k, x.k)
    M = state.M * x.decay + torch.outer((W @ x.q).tanh(), x.k)
    return Two(W, M), M @ x.q + W @ x.k


class Counted(NamedTuple):
    W: Matrix
    z: Accumulator
    n: Annotated[Tensor, TensorSpec("", "memory")]


def counted(state: Counted, x: QKV) -> tuple[Counted, Value]:
    """A mean: a matrix, a vector and a count."""
    W, z, n = state.W + torch.outer(x.v, x.k), state.z + x.k, state.n + 1
    return Counted(W, z, n), (W @ x.q) / (1 + z @ x.q) / n


def read_across(state: One, x: QKV) -> tuple[One, Value]:
    """Decay by column, and a read with a vector over the rows alone."""
    W = state.W * x.k.sigmoid() + torch.outer(x.v, x.k)
    return type(state)(W), (x.v @ W).sum() * x.v


def read_both_ways(state: One, x: Rated) -> tuple[One, Value]:
    """A scalar decay, one erased key and two written keys; reads before and after the step, from both sides."""
    before, keys = state.W @ x.q, x.v @ state.W
    decay, other = x.decay.mean(), torch.roll(x.k, 1)
    W = decay * state.W - x.beta * torch.outer(state.W @ x.k - x.v, x.k) + torch.outer(x.v.tanh(), other) / 4
    again = torch.roll(x.v, 1) @ W + x.v.tanh() @ W
    return type(state)(W), before + W @ x.q + (keys @ x.q - again @ x.k) * x.v


class Normalised(NamedTuple):
    W: Matrix
    n: Accumulator


def summed_keys(state: Normalised, x: QKV) -> tuple[Normalised, Value]:
    """A vector that is both a key and, in a product, a normaliser."""
    n = state.n + x.k
    W = state.W + torch.outer(x.v, n)
    return Normalised(W, n), W @ x.q / (1 + n @ x.q)


def normaliser_as_key(state: Normalised, x: Rated) -> tuple[Normalised, Value]:
    """The same with a decay: a product with the vector precedes its use as a key, and part of it erases."""
    n = state.n * x.decay + x.k
    W = state.W - x.beta * torch.outer(state.W @ n / (1 + n @ n), n) + torch.outer(x.v * (state.n @ x.q), n)
    return Normalised(W, n), W @ (x.q * n)


class Cube(NamedTuple):
    S: Annotated[Tensor, TensorSpec("V K K", "memory")]


class Memories(NamedTuple):
    S: Annotated[Tensor, TensorSpec("M V K", "memory")]


class Routed(NamedTuple):
    q: Key
    k: Annotated[Tensor, TensorSpec("M K", "key")]
    v: Annotated[Tensor, TensorSpec("M V", "value")]
    route: Annotated[Tensor, TensorSpec("M", "rate")]
    decay: Annotated[Tensor, TensorSpec("M", "decay")]


def second_order(state: Cube, x: Rated) -> tuple[Cube, Value]:
    S = x.beta * state.S + torch.einsum("v,k,l->vkl", x.v, x.k, x.k)
    return Cube(S), torch.einsum("vkl,k,l->v", S, x.q, x.q)


def second_order_delta(state: Cube, x: Rated) -> tuple[Cube, Value]:
    """Erases along the key vec(k k^T)."""
    S = state.S * torch.outer(x.decay, x.decay)
    erased = torch.einsum("vkl,k,l->v", S, x.k, x.k)
    S = S + x.beta * torch.einsum("v,k,l->vkl", x.v - erased, x.k, x.k)
    return Cube(S), torch.einsum("vkl,k,l->v", S, x.q, x.q)


def read_by_both_keys(state: Cube, x: Rated) -> tuple[Cube, Value]:
    """Reads along either axis of keys."""
    S = state.S + torch.einsum("v,k,l->vkl", x.v, x.k, x.k.flip(0))
    return Cube(S), torch.einsum("vkl,k->vl", S, x.q) @ x.k + torch.einsum("vkl,l->vk", state.S, x.q) @ x.decay


def mixture(state: Memories, x: Routed) -> tuple[Memories, Value]:
    """Memories with one key for writes and a mixture of reads."""
    S = state.S + torch.einsum("m,mv,k->mvk", x.route, x.v, x.q)
    return Memories(S), torch.einsum("mvk,k,m->v", S, x.q, x.route)


def mixture_of_deltas(state: Memories, x: Routed) -> tuple[Memories, Value]:
    """Memories with separate decays and correction keys."""
    S = state.S * x.decay[:, None, None]
    u = x.route[:, None] * (x.v - torch.einsum("mvk,mk->mv", S, x.k))
    S = S + u[:, :, None] * x.k[:, None, :]
    return Memories(S), torch.einsum("mvk,k,m->v", S, x.q, x.route.softmax(0))


USER_CELLS = {
    summed_keys: "n <- n + v k^T, W <- W + v k^T",
    normaliser_as_key: "n <- n diag(a) + v k^T, W <- W - W e f^T + v k^T",
    second_order: "S <- S a + v k^T (axes of S: rows 0 1, columns 2)",
    second_order_delta: "S <- S diag(a) - S e f^T + v k^T (axes of S: rows 0, columns 1 2)",
    read_by_both_keys: "S <- S + v k^T (axes of S: groups 0, rows 2, columns 1)",
    mixture: "S <- S + v k^T (axes of S: rows 0 1, columns 2)",
    mixture_of_deltas: "S <- S a - S e f^T + v k^T (axes of S: groups 0, rows 1, columns 2)",
    retention: "S^T <- S^T a + v k^T",
    by_einsum: "W <- W diag(a) - W e f^T + v k^T",
    shared: "W <- W - 2 (W e f^T) + v k^T",
    cascade: "W <- W - W e f^T + v k^T, M <- M diag(a) + v k^T",
    counted: "W and z <- W and z + v k^T, n <- n + v k^T",
    read_across: "W <- W diag(a) + v k^T",
    read_both_ways: "W <- W a - W e f^T + 2 (v k^T)",
}


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize(("step", "expected"), USER_CELLS.items(), ids=lambda x: getattr(x, "__name__", ""))
def test_user_defined_cell_runs_in_chunks(step, expected, dtype):
    cell = Cell.from_function(step)
    assert describe(cell) == expected
    for shape in (Shape(2, 37, 3, 5, 4), Shape(1, 20, 2, 1, 1), Shape(1, 20, 1, 1, 3), Shape(2, 9, 1, 3, 1)):
        start = sample_state(cell, shape, seed=5)
        a = scan_checks.arguments(cell, shape)._replace(initial_state=type(start)(*(x[0] for x in start)))
        want = scan_checks.results_and_gradients(cell, "reference", a)
        scan_checks.assert_close(scan_checks.results_and_gradients(cell, "chunkwise", a.to(dtype)), want, dtype, shape)


def part_of_rows(state: One, x: QKV) -> tuple[One, Value]:
    W = state.W + torch.outer(x.v, x.k)
    return type(state)(W), (W[:, :2] @ x.q[:2]) * x.v


def summed_to_a_matrix(state: Cube, x: QKV) -> tuple[Cube, Value]:
    S = state.S + (torch.outer(x.k, x.k) * x.v[:, None, None]).tanh()
    return Cube(S), torch.einsum("vkl,k,l->v", S, x.q, x.q)


def erased_along_two_axes(state: Cube, x: QKV) -> tuple[Cube, Value]:
    S = state.S - torch.einsum("vl,k->vkl", torch.einsum("vkl,k->vl", state.S, x.k), x.k)
    S = S - torch.einsum("vk,l->vkl", torch.einsum("vkl,l->vk", state.S, x.q), x.q)
    return Cube(S + x.v[:, None, None]), torch.einsum("vkl,k,l->v", S, x.q, x.q)


class Rates(NamedTuple):
    q: Key
    k: Key
    v: Value
    route: Annotated[Tensor, TensorSpec("M", "rate")]
    keys: Annotated[Tensor, TensorSpec("M K", "key")]


def read_over_the_memories_and_by_each(state: Memories, x: Rates) -> tuple[Memories, Value]:
    """The keys of one read differ along the axis that another read sums over."""
    S = state.S + torch.einsum("m,v,k->mvk", x.route, x.v, x.k)
    averaged = torch.einsum("mvk,m->vk", S, x.route)
    return Memories(S), averaged.tanh() @ x.q + torch.einsum("mvk,mk->mv", S, x.keys).tanh().sum(0)


def read_flattened(state: Cube, x: QKV) -> tuple[Cube, Value]:
    S = state.S + torch.einsum("v,k,l->vkl", x.v, x.k, x.k)
    return Cube(S), (S.flatten(1).tanh() * torch.outer(x.q, x.q).flatten()).sum(1)


def squared(state: One, x: QKV) -> tuple[One, Value]:
    W = state.W @ state.W.mT @ state.W + torch.outer(x.v, x.k)
    return type(state)(W), W @ x.q


def both_sides(state: One, x: QKV) -> tuple[One, Value]:
    W = state.W - torch.outer(state.W @ x.k, x.k) - torch.outer(x.v, x.v @ state.W)
    return type(state)(W), W @ x.q


def whole_read(state: One, x: QKV) -> tuple[One, Value]:
    W = state.W + torch.outer(x.v, x.k)
    return type(state)(W), W.tanh() @ x.q


def reversed_rows(state: One, x: QKV) -> tuple[One, Value]:
    W = state.W.flip(0) + torch.outer(x.v, x.k)
    return type(state)(W), W @ x.q


def shifted(state: One, x: QKV) -> tuple[One, Value]:
    W = torch.cat([state.W[1:], state.W[:1] * x.v.sum()])
    return type(state)(W), W @ x.q


def filled(state: One, x: QKV) -> tuple[One, Value]:
    W = state.W + torch.outer(x.v, x.k).tanh()
    return type(state)(W), W @ x.q


def fading_by_itself(state: One, x: QKV) -> tuple[One, Value]:
    W = state.W * torch.outer(x.v, x.k).sigmoid() + torch.outer(x.v, x.k)
    return type(state)(W), W @ x.q


def fading_across(state: One, x: QKV) -> tuple[One, Value]:
    W = state.W * x.v.sigmoid().unsqueeze(-1) + torch.outer(x.v - state.W @ x.k, x.k)
    return type(state)(W), W @ x.q


def read_by_similarity(state: One, x: QKV) -> tuple[One, Value]:
    """No decay: a read by the similarity of rows with the value."""
    W = state.W + torch.outer(x.v, x.k)
    return type(state)(W), W @ (x.v @ W).softmax(-1)


def erased_by_rows(state: One, x: QKV) -> tuple[One, Value]:
    W = state.W - torch.outer(x.v.sigmoid() * (state.W @ x.k), x.k)
    return type(state)(W), W @ x.q


def scaled_by_the_largest(state: One, x: QKV) -> tuple[One, Value]:
    W = state.W / state.W.amax() + torch.outer(x.v, x.k)
    return type(state)(W), W @ x.q


def diagonal(state: One, x: QKV) -> tuple[One, Value]:
    W = state.W + torch.outer(x.v, x.k)
    return type(state)(W), W[:, 0] * x.v


def branching(state: One, x: QKV) -> tuple[One, Value]:
    W = state.W + torch.outer(x.v, x.k) if x.v.sum() > 0 else state.W
    return type(state)(W), W @ x.q


def coupled_by_rows(state: Two, x: Rated) -> tuple[Two, Value]:
    M = x.v[:, None] * state.M + torch.outer(x.v, x.k)
    W = state.W + M + torch.outer(state.W @ x.k, x.k)
    return Two(W, M), W @ x.q


def coupled_by_tanh(state: Two, x: Rated) -> tuple[Two, Value]:
    M = state.M.tanh() + torch.outer(state.W @ x.k, x.k)
    W = state.W + M
    return Two(W, M), W @ x.q


def reading_each_other(state: Two, x: Rated) -> tuple[Two, Value]:
    W = state.W + torch.outer(x.v, x.k)
    M = state.M + torch.outer(x.v, x.k) * (W @ x.q).sum().tanh()
    W = W + torch.outer(M @ x.q, x.k)
    return Two(W, M), W @ x.q


REFUSED = {
    part_of_rows: "elements of W are read one by one",
    summed_to_a_matrix: "a whole matrix is added to S",
    erased_along_two_axes: "S is multiplied from both sides",
    read_over_the_memories_and_by_each: "S is in products with vectors over different axes",
    read_flattened: "elements of S are read one by one",
    squared: "W is multiplied by itself",
    both_sides: "W is multiplied from both sides",
    whole_read: "elements of W are read one by one, not in a product with a vector",
    reversed_rows: "elements of W move to other positions",
    shifted: "W is split",
    filled: "a whole matrix is added to W",
    fading_by_itself: "every element of W decays separately",
    fading_across: "the rows of W decay separately, and are erased together",
    erased_by_rows: "the erased part of W differs between rows",
    scaled_by_the_largest: "W is passed through div",
    read_by_similarity: "elements of W are read one by one",
    diagonal: "elements of W are read one by one",
    branching: "a value taken out of a tensor",
    coupled_by_rows: "the rows of [M W] decay separately",
    coupled_by_tanh: "M and W depend on each other, and M is passed through tanh",
    reading_each_other: "M and W depend on each other, and W is passed through tanh",
}


@pytest.mark.parametrize(("step", "expected"), REFUSED.items(), ids=lambda x: getattr(x, "__name__", ""))
def test_explain_names_the_line_that_prevents_chunks(step, expected):
    cell = Cell.from_function(step)
    assert expected in describe(cell)
    lines, first = inspect.getsourcelines(step)
    file, number, code = LINE.search(describe(cell)).groups()
    assert file == "test_affine.py"
    assert lines[int(number) - first].strip() == code
    with pytest.raises(InputError, match=re.escape(describe(cell))):
        scan_checks.run(cell, "chunkwise", scan_checks.arguments(cell, SHAPE))


LINE = re.compile(r"in (\w+\.py):(\d+): ([^;]*)")


@pytest.mark.parametrize("name", Cell.names())
def test_reason_against_chunks_names_a_line(name):
    """The line belongs to the cell or to a rule that it calls."""
    expected = describe(Cell.from_name(name))
    if "is not affine" in expected:
        file, number, code = LINE.search(expected).groups()
        folder = Path(fastweights.__file__).parent
        texts = [path.read_text().splitlines() for path in folder.rglob(file) if path.parent.name in ("cells", "rules")]
        assert any(text[int(number) - 1].strip() == code for text in texts if len(text) >= int(number))


class Divided(NamedTuple):
    q: Key
    k: Key
    v: Value
    by: Annotated[Tensor, TensorSpec("", "value")]


def divided(state: One, x: Divided) -> tuple[One, Value]:
    """A division of the state by a number other than 0, and an erase along a key other than 0."""
    W = torch.where(x.by == 0, state.W, state.W / x.by)
    key = x.k / x.k.norm()
    W = torch.where(x.k.sum() == 0, W, W - torch.outer(W @ key - x.v, key))
    return type(state)(W), W @ x.q


def divided_by_row(state: One, x: QKV) -> tuple[One, Value]:
    """A division of every row by its number other than 0."""
    by = x.v[:, None]
    W = torch.where(by == 0, state.W, state.W / by) + torch.outer(x.v, x.k)
    return type(state)(W), W @ x.q


@pytest.mark.parametrize("step", [divided, divided_by_row], ids=lambda f: f.__name__)
def test_unselected_branch_may_be_infinite(step):
    cell = Cell.from_function(step)
    a = scan_checks.arguments(cell, SHAPE)
    zeros = torch.arange(SHAPE.T)[:, None] % 3 == 1
    inputs = a.inputs._replace(
        k=a.inputs.k.masked_fill(zeros[..., None], 0), v=a.inputs.v.masked_fill(zeros[..., None], 0)
    )
    if step is divided:
        inputs = inputs._replace(by=(2 + inputs.by.abs()).masked_fill(zeros, 0))
    want, _ = scan_checks.run(cell, "reference", a._replace(inputs=inputs))
    got, _ = scan_checks.run(cell, "chunkwise", a._replace(inputs=inputs))
    assert want.isfinite().all()
    scan_checks.assert_close({"y": got}, {"y": want}, torch.float64)


def fading_alone(W: Matrix) -> Matrix:
    return 0.5 * W


def test_memory_without_writes_runs_in_chunks():
    cell = Cell.from_function(fading_alone)
    a = scan_checks.arguments(cell, SHAPE)._replace(reset=None)
    assert torch.equal(scan_checks.run(cell, "chunkwise", a)[1].W, a.state.W * 0.5**SHAPE.T)
