"""User-defined cells of every kind that runs in chunks equal the reference, without a declaration."""

from math import prod
from typing import Annotated, NamedTuple

import pytest
import torch
from torch import Tensor

from fastweights import Cell, explain
from fastweights.backends import compiled, reference
from fastweights.backends.chunkwise import chunks, loop, state_passing
from fastweights.backends.chunkwise.chunk_maps import ChunkMaps
from fastweights.backends.chunkwise.factors import COLUMNS, ColumnBlocks
from fastweights.backends.chunkwise.lowering import RecurrentStage, lowering_for
from fastweights.signature import Decay, Key, KeyDecay, Matrix, Output, Rate, RecurrentMatrix, TensorSpec, Value
from fastweights.testing import scan_checks
from fastweights.testing.samples import Shape, sample_state
from tiers import slow_unless

SHAPES = [
    Shape(2, 37, 3, 5, 4),
    Shape(1, 20, 2, 1, 1),
    Shape(1, 20, 1, 1, 3),
    Shape(2, 9, 1, 3, 1),
    Shape(1, 1, 1, 2, 2),
]


class Inputs(NamedTuple):
    q: Key
    k: Key
    v: Value
    beta: Rate
    momentum: Rate
    decay: Decay
    column_decay: KeyDecay
    row_decay: Annotated[Tensor, TensorSpec("V", "decay")]


class One(NamedTuple):
    W: Matrix


# Delays


class Trapezoid(NamedTuple):
    W: Matrix
    k_last: Annotated[Tensor, TensorSpec("K", "memory")]
    v_last: Annotated[Tensor, TensorSpec("V", "memory")]


def trapezoidal(state: Trapezoid, x: Inputs) -> tuple[Trapezoid, Value]:
    """Mamba-3's rule: writes a weighted sum of the last token and this token."""
    before = (1 - x.beta) * x.decay * torch.outer(state.v_last, state.k_last)
    W = x.decay * state.W + before + x.beta * torch.outer(x.v, x.k)
    return Trapezoid(W, x.k, x.v), W @ x.q


class Window(NamedTuple):
    W: Matrix
    window: Annotated[Tensor, TensorSpec("J K", "memory")]


class Taps(NamedTuple):
    taps: Annotated[Tensor, TensorSpec("J K", "constant")]


def short_convolution(state: Window, x: Inputs, params: Taps) -> tuple[Window, Value]:
    """A delta rule whose key is a convolution over the last keys."""
    window = torch.cat([state.window[1:], x.k.unsqueeze(0)])
    k = torch.nn.functional.silu((window * params.taps).sum(0))
    W = state.W + x.beta * torch.outer(x.v - state.W @ k, k)
    return Window(W, window), W @ x.q


def rolled_window(state: Window, x: Inputs) -> tuple[Window, Value]:
    """A window that rolls, with a write to one position."""
    window = state.window.roll(1, 0)
    window[0] = x.k * x.beta
    W = x.decay * state.W + torch.outer(x.v, window.mean(0) - state.window[0])
    return Window(W, window), W @ x.q


class Columns(NamedTuple):
    W: Matrix
    window: Annotated[Tensor, TensorSpec("K 3", "memory")]
    recalled: Annotated[Tensor, TensorSpec("V", "memory")]


def window_of_columns(state: Columns, x: Inputs) -> tuple[Columns, Value]:
    """A window along the last axis, and a vector read from an affine state in the step before."""
    window = torch.stack([x.k, state.window[:, 0], state.window[:, 1]], 1)
    W = state.W * x.column_decay + torch.outer(x.v, window.sum(1).tanh())
    recalled = (W @ x.q).tanh()
    return Columns(W, window, recalled), recalled + state.recalled * x.v


class Chain(NamedTuple):
    last: Annotated[Tensor, TensorSpec("K", "memory")]
    before_last: Annotated[Tensor, TensorSpec("K", "memory")]
    rate: Annotated[Tensor, TensorSpec("", "memory")]
    W: Matrix


def chain_of_delays(state: Chain, x: Inputs) -> tuple[Chain, Value]:
    """A delay of a delay, and a delayed number."""
    k = x.k + state.rate * state.before_last
    W = state.W - x.beta * torch.outer(state.W @ k - x.v, k)
    return Chain(x.k, state.last, x.beta, W), W @ x.q


def queue(state: One, x: Inputs) -> tuple[One, Value]:
    """The last rows, one per step; reads are by content."""
    W = torch.cat([state.W[1:], (x.k * x.beta).unsqueeze(0)])
    return One(W), (W @ x.q).softmax(0) * x.v


# Decays by row and by column


def decay_by_rows_and_columns(state: One, x: Inputs) -> tuple[One, Value]:
    W = state.W * x.row_decay[:, None] * x.column_decay[None, :] + torch.outer(x.v, x.k)
    return One(W), W @ x.q


def decay_by_rows_and_columns_read_everywhere(state: One, x: Inputs) -> tuple[One, Value]:
    """Two writes, and reads from both sides, before and after the step."""
    before, reads = state.W @ x.q, x.v @ state.W
    decayed = x.row_decay[:, None] * (x.decay * state.W) * x.column_decay
    W = decayed + torch.outer(x.v, x.k) + x.beta * torch.outer(x.v.tanh(), x.k.flip(0))
    after = x.v.tanh() @ W + x.row_decay @ W
    return One(W), before + W @ x.k + W @ x.q + (reads @ x.q - after @ x.k) * x.v


def decay_by_rows(state: One, x: Inputs) -> tuple[One, Value]:
    """A decay by row alone, and reads with vectors over the columns and over the rows."""
    W = x.row_decay[:, None] * state.W + torch.outer(x.v, x.k)
    return One(W), W @ x.q + (x.v @ W).sum() * x.row_decay


class Memories(NamedTuple):
    S: Annotated[Tensor, TensorSpec("M V K", "memory")]


class Routed(NamedTuple):
    q: Key
    k: Key
    v: Value
    keys: Annotated[Tensor, TensorSpec("M K", "key")]
    values: Annotated[Tensor, TensorSpec("M V", "value")]
    route: Annotated[Tensor, TensorSpec("M", "rate")]
    decay: Annotated[Tensor, TensorSpec("M", "decay")]
    row_decay: Annotated[Tensor, TensorSpec("V", "decay")]
    column_decay: KeyDecay


def memories_that_decay_by_rows_and_columns(state: Memories, x: Routed) -> tuple[Memories, Value]:
    """Each memory has its own decay, and all decay by rows and by columns."""
    decay = x.decay[:, None, None] * x.row_decay[:, None] * x.column_decay
    S = decay * state.S + torch.einsum("mv,mk->mvk", x.values, x.keys)
    return Memories(S), torch.einsum("mvk,k,m->v", S, x.q, x.route)


# Coupled states


class Two(NamedTuple):
    W: Matrix
    M: Matrix


def momentum(state: Two, x: Inputs) -> tuple[Two, Value]:
    """Titans: gradient descent with momentum and weight decay."""
    gradient = torch.outer(state.W @ x.k - x.v, x.k)
    M = x.momentum * state.M - x.beta * gradient
    W = (1 - x.beta / 2) * state.W + M
    return Two(W, M), W @ x.q


def nesterov(state: Two, x: Inputs) -> tuple[Two, Value]:
    """The gradient at the weights after the momentum step, from torch.func.grad, and a step size."""

    def loss(W: Tensor) -> Tensor:
        return (W @ x.k - x.v).square().sum() / 2

    M = x.momentum * state.M - torch.func.grad(loss)(state.W + x.momentum * state.M)
    W = x.decay * state.W + x.beta * M
    return Two(W, M), W @ x.q


def momentum_by_column(state: Two, x: Inputs) -> tuple[Two, Value]:
    """A decay by column of the weights, and reads of both states from both sides, before and after the step."""
    M = x.momentum * state.M + x.beta * torch.outer(x.v - state.W @ x.k, x.k)
    W = x.column_decay * state.W + M
    read = W @ x.q + state.M @ x.q + (x.v @ M + x.v @ state.W).sum() * x.v
    return Two(W, M), read


def rotated(state: Two, x: Inputs) -> tuple[Two, Value]:
    """A complex state that rotates, as its real and its imaginary part."""
    cos, sin = torch.cos(3 * x.beta), torch.sin(3 * x.beta)
    real = x.decay * (cos * state.W - sin * state.M) + torch.outer(x.v, x.k)
    imaginary = x.decay * (sin * state.W + cos * state.M)
    return Two(real, imaginary), real @ x.q + imaginary @ x.k


def reading_each_other(state: Two, x: Inputs) -> tuple[Two, Value]:
    """Each memory stores reads of the other. No decay."""
    W = state.W + x.beta * torch.outer(x.v - state.M @ x.k, x.k)
    M = state.M + torch.outer(W @ x.k, x.q) / 4
    return Two(W, M), W @ x.q


class Outer(NamedTuple):
    last: Annotated[Tensor, TensorSpec("V K", "memory")]
    W: Matrix


def trapezoidal_of_products(state: Outer, x: Inputs) -> tuple[Outer, Value]:
    """Mamba-3's rule with the last product as a state."""
    last = torch.outer(x.v, x.k)
    W = x.decay * state.W + (1 - x.beta) * x.decay * state.last + x.beta * last
    return Outer(last, W), W @ x.q


class Oscillator(NamedTuple):
    position: Annotated[Tensor, TensorSpec("K", "memory")]
    speed: Annotated[Tensor, TensorSpec("K", "memory")]
    W: Matrix


def oscillating_keys(state: Oscillator, x: Inputs) -> tuple[Oscillator, Value]:
    """Coupled vectors, through a nonlinear function."""
    speed = x.decay * state.speed - x.beta * state.position + x.k
    position = state.position + x.beta * speed
    W = x.decay * state.W + torch.outer(x.v, position.tanh())
    return Oscillator(position, speed, W), W @ x.q


class Three(NamedTuple):
    W: Matrix
    M: Matrix
    slow: Annotated[Tensor, TensorSpec("V K", "memory")]


def momentum_and_average(state: Three, x: Inputs) -> tuple[Three, Value]:
    """A chain of three states with reads of the average of the weights."""
    M = x.momentum * state.M + x.beta * torch.outer(x.v - state.W @ x.k, x.k)
    W = x.decay * state.W + M
    slow = x.beta * state.slow + (1 - x.beta) * W
    return Three(W, M, slow), slow @ x.q


class ManyTwo(NamedTuple):
    S: Annotated[Tensor, TensorSpec("M V K", "memory")]
    P: Annotated[Tensor, TensorSpec("M V K", "memory")]


def momentum_of_memories(state: ManyTwo, x: Routed) -> tuple[ManyTwo, Value]:
    """Each memory has its own key, rate and momentum."""
    wrong = x.values - torch.einsum("mvk,mk->mv", state.S, x.keys)
    P = x.decay[:, None, None] * state.P / 2 + torch.einsum("m,mv,mk->mvk", x.route, wrong, x.keys)
    S = x.decay[:, None, None] * state.S + P
    return ManyTwo(S, P), torch.einsum("mvk,k,m->v", S, x.q, x.route)


# Memories


def mixture(state: Memories, x: Routed) -> tuple[Memories, Value]:
    """Memories with corrections along one key and a mixture of reads."""
    S = state.S * x.decay[:, None, None]
    wrong = x.route[:, None] * (x.v - S @ x.k)
    S = S + wrong[:, :, None] * x.k
    return Memories(S), torch.einsum("mvk,k,m->v", S, x.q, x.route.softmax(0))


def separate_keys(state: Memories, x: Routed) -> tuple[Memories, Value]:
    """Memories with corrections along separate keys."""
    wrong = x.values - torch.einsum("mvk,mk->mv", state.S, x.keys)
    S = state.S + x.route[:, None, None] * wrong[:, :, None] * x.keys[:, None, :]
    return Memories(S), torch.einsum("mvk,mk->v", S, x.keys)


class Normalised(NamedTuple):
    S: Annotated[Tensor, TensorSpec("M V K", "memory")]
    z: Annotated[Tensor, TensorSpec("M K", "memory")]


def normalised_memories(state: Normalised, x: Routed) -> tuple[Normalised, Value]:
    """Linear attention per memory, with separate normalisers."""
    S = state.S * x.decay[:, None, None] + torch.einsum("mv,mk->mvk", x.values, x.keys)
    z = state.z * x.decay[:, None] + x.keys
    read = torch.einsum("mvk,k->mv", S, x.q) / (1 + (z @ x.q).abs())[:, None]
    return Normalised(S, z), x.route @ read


class Slots(NamedTuple):
    S: Annotated[Tensor, TensorSpec("M J V", "memory")]


class Products(NamedTuple):
    v: Value
    beta: Rate
    first: Annotated[Tensor, TensorSpec("M", "key")]
    second: Annotated[Tensor, TensorSpec("J", "key")]
    query: Annotated[Tensor, TensorSpec("M J", "key")]


def product_keys(state: Slots, x: Products) -> tuple[Slots, Value]:
    """Slots with the product of two distributions as their address, and corrections."""
    address = torch.outer(x.first.softmax(0), x.second.softmax(0))[:, :, None]
    S = state.S + x.beta * address * (x.v - (address * state.S).sum((0, 1)))
    return Slots(S), (x.query[:, :, None] * S).sum((0, 1))


# Coupled along an axis of a state


class Complex(NamedTuple):
    W: Annotated[Tensor, TensorSpec("2 V K", "memory")]
    z: Annotated[Tensor, TensorSpec("2 K", "memory")]


def complex_memory(state: Complex, x: Inputs) -> tuple[Complex, Value]:
    """A memory and a normaliser that rotate, as their real and imaginary parts."""
    cos, sin = x.decay * torch.cos(3 * x.column_decay), x.decay * torch.sin(3 * x.column_decay)
    W = torch.stack([state.W[0] * cos + state.W[1] * sin, state.W[1] * cos - state.W[0] * sin])
    z = torch.stack([state.z[0] * cos + state.z[1] * sin, state.z[1] * cos - state.z[0] * sin])
    k, q = torch.stack([x.k, x.k.flip(0)]), torch.stack([x.q, x.k * x.beta])
    W, z = W + x.v[:, None] * k[:, None, :], z + k
    return Complex(W, z), torch.einsum("cvk,ck->v", W, q) / (1 + (z * q).sum().square())


def complex_delta(state: Complex, x: Inputs) -> tuple[Complex, Value]:
    """A correction of the real part, and a delay as the normaliser."""
    angle = 3 * x.beta
    real = x.decay * (angle.cos() * state.W[0] + angle.sin() * state.W[1])
    imaginary = x.decay * (angle.cos() * state.W[1] - angle.sin() * state.W[0])
    real = real + torch.outer(x.beta * (x.v - real @ x.k), x.k)
    W = torch.cat([real.unsqueeze(0), imaginary.unsqueeze(0)])
    read = W @ x.q
    return Complex(W, torch.stack([x.k, x.q])), read[0] + read[1].tanh() * (state.z[0] @ x.q)


class Mixed(NamedTuple):
    q: Key
    k: Key
    v: Value
    beta: Rate
    mixing: Annotated[Tensor, TensorSpec("M M", "value")]
    route: Annotated[Tensor, TensorSpec("M", "rate")]


def mixed_memories(state: Memories, x: Mixed) -> tuple[Memories, Value]:
    """A matrix that mixes the memories, and corrections of all along one key."""
    S = torch.einsum("mn,nvk->mvk", x.mixing.softmax(0) * x.beta, state.S)
    wrong = x.route[:, None] * (x.v - S @ x.k)
    S = S + wrong[:, :, None] * x.k
    return Memories(S), torch.einsum("mvk,k,m->v", S, x.q, x.route.softmax(0))


def levels(state: Memories, x: Mixed) -> tuple[Memories, Value]:
    """Each memory moves a part of its contents to the next memory."""
    moved = state.S * x.route[:, None, None]
    S = torch.cat([(moved[0] + torch.outer(x.v, x.k))[None], moved[1:] + (state.S - moved)[:-1]])
    return Memories(S), x.route @ (S @ x.q)


class Counted(NamedTuple):
    S: Annotated[Tensor, TensorSpec("2 V K", "memory")]
    level: Annotated[Tensor, TensorSpec("", "memory")]


def counted_levels(state: Counted, x: Inputs) -> tuple[Counted, Value]:
    """A scalar that is no affine function of itself selects the contents for the second memory."""
    level = (state.level * x.beta + x.decay).tanh()
    is_moved = state.level > 0.5
    first = torch.where(is_moved, 0.0, state.S[0]) + torch.outer(x.v, x.k) * level
    S = torch.stack([first, x.decay * state.S[1] + torch.where(is_moved, state.S[0], 0.0)])
    return Counted(S, level), (S @ x.q).sum(0)


# Order three


class Cube(NamedTuple):
    S: Annotated[Tensor, TensorSpec("V K K", "memory")]
    z: Annotated[Tensor, TensorSpec("K K", "memory")]


def power_attention(state: Cube, x: Inputs) -> tuple[Cube, Value]:
    """Keys of order two, with a normaliser."""
    keys, queries = torch.outer(x.k, x.k), torch.outer(x.q, x.q)
    S = x.decay * state.S + x.v[:, None, None] * keys
    z = x.decay * state.z + keys
    return Cube(S, z), (S * queries).sum((1, 2)) / (1 + (z * queries).sum())


class Order(NamedTuple):
    S: Annotated[Tensor, TensorSpec("V K K", "memory")]


def power_delta(state: Order, x: Inputs) -> tuple[Order, Value]:
    """A delta rule along keys of order two."""
    wrong = x.v - torch.einsum("vkl,k,l->v", state.S, x.k, x.k)
    S = state.S + x.beta * torch.einsum("v,k,l->vkl", wrong, x.k, x.k)
    return Order(S), torch.einsum("vkl,k,l->v", S, x.q, x.q)


def flattened_power_attention(state: Cube, x: Inputs) -> tuple[Cube, Value]:
    """Keys of order two, flattened for writes and reads."""
    keys, queries = torch.outer(x.k, x.k).flatten(), torch.outer(x.q, x.q).flatten()
    S = (x.decay * state.S.flatten(1) + torch.outer(x.v, keys)).view_as(state.S)
    z = (x.decay * state.z.reshape(-1) + keys).view_as(state.z)
    return Cube(S, z), S.flatten(1) @ queries / (1 + z.flatten() @ queries)


def flattened_power_delta(state: Order, x: Inputs) -> tuple[Order, Value]:
    """A delta rule along flattened keys of order two."""
    keys = torch.outer(x.k, x.k)
    wrong = x.v - state.S.flatten(1) @ keys.flatten()
    S = state.S + x.beta * (wrong[:, None] * keys.flatten()).view_as(state.S)
    return Order(S), torch.einsum("vkl,kl->v", S, torch.outer(x.q, x.q))


def flattened_memories(state: Memories, x: Routed) -> tuple[Memories, Value]:
    """Memories that are stacked to one matrix for corrections and reads."""
    S = state.S.flatten(0, 1)
    wrong = x.values.flatten() - S @ x.k
    S = (S + torch.outer(wrong, x.k) * x.route.mean()).view_as(state.S)
    return Memories(S), x.route @ (S.flatten(0, 1) @ x.q).view_as(x.values)


# Affine parts of recurrent cells


class Reader(NamedTuple):
    W: Matrix
    h: Output


def recurrent_reader(state: Reader, x: Inputs) -> tuple[Reader, Value]:
    """A recurrent network that reads a memory and does not write it."""
    W = x.decay * state.W + x.beta * torch.outer(x.v - state.W @ x.k, x.k)
    h = torch.tanh(W @ x.q + state.h.roll(1) * x.row_decay)
    return Reader(W, h), h


def recurrent_writer(state: Reader, x: Inputs) -> tuple[Reader, Value]:
    """A recurrent network that writes a memory and does not read it."""
    h = torch.tanh(x.v - x.beta * state.h.flip(0))
    W = x.column_decay * state.W + torch.outer(h - state.h, x.k)
    return Reader(W, h), W @ x.q + state.W @ x.k


class ReaderAndWriter(NamedTuple):
    R: RecurrentMatrix
    h: Output
    W: Matrix
    M: Matrix
    last: Annotated[Tensor, TensorSpec("K", "memory")]


def recurrent_reader_and_writer(state: ReaderAndWriter, x: Inputs) -> tuple[ReaderAndWriter, Value]:
    """A recurrence over h and R, in which h reads itself, reads W and writes M."""
    W = x.decay * state.W + torch.outer(x.v, x.k + state.last)
    R = state.R + x.beta * torch.outer(x.v - state.R @ x.row_decay.softmax(0), x.row_decay.softmax(0))
    h = torch.tanh(W @ x.q + R @ state.h.softmax(0))
    M = state.M + x.beta * torch.outer(h - state.M @ x.k, x.k)
    return ReaderAndWriter(R, h, W, M, x.k), M @ x.q + h * x.momentum


def loops(cell: Cell, sizes: dict[str, int]) -> list[RecurrentStage]:
    """The recurrent stages of a cell; none for cells that do not run in chunks."""
    lowering = lowering_for(cell.key, tuple(sorted(sizes.items())), torch.float32)
    return [] if isinstance(lowering, str) else [s for s in lowering.stages if isinstance(s, RecurrentStage)]


@pytest.mark.parametrize("name", Cell.names())
def test_outputs_of_a_loop_are_vectors(name):
    """The loop computes the products of its states with vectors that other stages read."""
    cell = Cell.from_name(name)
    for stage in loops(cell, cell.example_sizes):
        states = [prod(slot.shape({})) for slot in stage.cell.slots["State"].values()]
        assert max(prod(shape) for _, shape in stage.outputs) <= max(states) // 2 or max(states) == 1


@pytest.mark.parametrize("step", [recurrent_reader_and_writer, Cell.from_name("srwm")], ids=["reader", "srwm"])
def test_loop_runs_in_a_compiled_kernel_or_the_reference(step, monkeypatch):
    cell, shape = Cell.from_function(step), SHAPES[0]
    a = arguments_of(cell, shape)[1]
    want = scan_checks.results_and_gradients(cell, "reference", a)
    for missing in (compiled, reference):
        with monkeypatch.context() as patch:
            if missing is compiled:
                patch.setattr(compiled, "unsupported_reason", lambda call, build: "there is no compiler")
            patch.setattr(missing, "run", lambda call, name=missing.__name__: pytest.fail(f"{name} runs the loop"))
            scan_checks.assert_close(scan_checks.results_and_gradients(cell, "chunkwise", a), want, torch.float64)


@pytest.mark.parametrize(
    ("name", "shape", "chosen"),
    [
        ("delta-rnn", Shape(2, 256, 2, 256, 256), "chunkwise"),
        ("delta-rnn", Shape(1, 256, 1, 256, 256), "compiled"),
        ("delta-rnn", Shape(64, 256, 8, 64, 64), "compiled"),
        ("delta-lstm", Shape(2, 256, 2, 256, 256), "compiled"),
        ("log-linear-attention", Shape(64, 256, 2, 64, 64), "compiled"),
    ],
)
def test_auto_uses_chunks_of_a_recurrent_cell_where_they_are_faster(name, shape, chosen):
    """Chunks are faster for large states in training (docs/measurements/recurrent-chunks.csv)."""
    cell = Cell.from_name(name)
    slots = {
        field: slot.shape({**cell.example_sizes, "K": shape.K, "V": shape.V})
        for field, slot in cell.slots["Inputs"].items()
    }
    leading = (shape.B, shape.T, shape.H)
    inputs = cell.Inputs(*(torch.empty(1).expand(*leading, *size).requires_grad_() for size in slots.values()))
    assert explain(cell, inputs).chosen == chosen


# The table

FORMS = {
    trapezoidal: "k_last <- x, v_last <- x, W <- W a + 2 (v k^T)",
    short_convolution: "window <- the last 2 x, W <- W - W e f^T + v k^T",
    rolled_window: "window <- the last 2 x, W <- W a + v k^T",
    window_of_columns: "window <- the last 3 x, W <- W diag(a) + v k^T, recalled <- x",
    chain_of_delays: "last <- x, before_last <- x, rate <- x, W <- W - W e f^T + v k^T",
    queue: "W <- the last 4 x",
    decay_by_rows_and_columns: "W <- diag(b) W diag(a) + v k^T",
    decay_by_rows_and_columns_read_everywhere: "W <- diag(b) W diag(a) + 2 (v k^T)",
    decay_by_rows: "W^T <- W^T diag(a) + v k^T",
    memories_that_decay_by_rows_and_columns: "S <- diag(b) S diag(a) + v k^T (axes of S: groups 0, rows 1, columns 2)",
    momentum: "[W M] <- [W M] A - [W M] e f^T + v k^T",
    nesterov: "[W M] <- [W M] A - [W M] e f^T + v k^T",
    momentum_by_column: "[W M] <- [W M] A - [W M] e f^T + v k^T",
    rotated: "[W M] <- [W M] A + v k^T",
    reading_each_other: "[W M] <- [W M] - 2 ([W M] e f^T) + 2 (v k^T)",
    trapezoidal_of_products: "[last W] <- [last W] A + v k^T",
    oscillating_keys: "[position speed] <- [position speed] A + v k^T, W <- W a + v k^T",
    momentum_and_average: "[W M slow] <- [W M slow] A - [W M slow] e f^T + v k^T",
    momentum_of_memories: "[S P] <- [S P] A - [S P] e f^T + v k^T (axes of S: groups 0, rows 1, columns 2)",
    mixture: "S <- S a - S e f^T + v k^T (axes of S: groups 0, rows 1, columns 2)",
    separate_keys: "S <- S - S e f^T + v k^T (axes of S: groups 0, rows 1, columns 2)",
    normalised_memories: "S and z <- S and z a + v k^T (axes of S: groups 0, rows 1, columns 2)",
    product_keys: "S <- S - S e f^T + v k^T (axes of S: rows 2, columns 0 1)",
    power_attention: "S and z <- S and z a + v k^T (axes of S: rows 0 1, columns 2)",
    complex_memory: "[W_0 W_1] <- [W_0 W_1] A + v k^T, [z_0 z_1] <- [z_0 z_1] A + v k^T",
    complex_delta: "z <- x, [W_0 W_1] <- [W_0 W_1] A - [W_0 W_1] e f^T + v k^T",
    mixed_memories: "[S_0 S_1] <- [S_0 S_1] A - 2 ([S_0 S_1] e f^T) + 2 (v k^T)",
    levels: "[S_0 S_1] <- [S_0 S_1] A + v k^T",
    flattened_power_attention: "S and z <- S and z a + v k^T (axes of S: rows 0 1, columns 2)",
    flattened_power_delta: "S <- S - S e f^T + v k^T (axes of S: rows 0, columns 1 2)",
    flattened_memories: "S <- S - S e f^T + v k^T (axes of S: rows 0 1, columns 2)",
    counted_levels: "level <- f(level), [S_0 S_1] <- [S_0 S_1] A + v k^T",
    power_delta: "S <- S - S e f^T + v k^T (axes of S: rows 0, columns 1 2)",
    recurrent_reader: "W <- W a - W e f^T + v k^T, h <- f(h) step by step",
    recurrent_writer: "h <- f(h) step by step, W <- W diag(a) + v k^T",
    recurrent_reader_and_writer: (
        "last <- x, W <- W a + v k^T, (R, h) <- f(R, h) step by step, M <- M - M e f^T + v k^T"
    ),
}
"""The form that `explain` prints, by cell."""


def arguments_of(cell, shape):
    """A call with resets to a state that is not 0, and the same call with lengths and without a state."""
    start = sample_state(cell, shape, seed=5)
    full = scan_checks.arguments(cell, shape)._replace(initial_state=type(start)(*(x[0] for x in start)))
    lengths = torch.tensor([shape.T // 2, shape.T][: shape.B])
    return [
        full,
        full._replace(lengths=lengths),
        full._replace(reset=None, state=None),
        full._replace(initial_state=None),
    ]


def shapes_and_dtypes(is_first):
    """Each kind with all pairs of a shape and a dtype: `make test` has the odd shape and one other pair, in turn."""
    others = [(shape, dtype) for shape in SHAPES[1:] for dtype in (torch.float64, torch.float32)]
    pairs = [(shape, dtype) for shape in SHAPES for dtype in (torch.float64, torch.float32)]
    for n, step in enumerate(FORMS):
        first = [(SHAPES[0], (torch.float64, torch.float32)[n % 2]), others[n % len(others)]]
        chosen = first if is_first else [pair for pair in pairs if pair not in first]
        yield pytest.param(step, chosen, id=step.__name__, marks=slow_unless(is_first))


@pytest.mark.parametrize(("step", "pairs"), [*shapes_and_dtypes(True), *shapes_and_dtypes(False)])
def test_every_kind_equals_the_reference_in_chunks(step, pairs):
    cell = Cell.from_function(step)
    for shape, dtype in pairs:
        for a in arguments_of(cell, shape):
            want = scan_checks.results_and_gradients(cell, "reference", a)
            got = scan_checks.results_and_gradients(cell, "chunkwise", a.to(dtype))
            scan_checks.assert_close(got, want, dtype, shape)


@pytest.mark.parametrize("step", FORMS, ids=lambda f: getattr(f, "__name__", ""))
def test_every_kind_equals_the_reference_in_blocks_of_time(step, monkeypatch):
    """The backward pass stores one state per chunk, and recomputes the others."""
    monkeypatch.setattr(chunks, "BLOCK", 200)
    cell, shape = Cell.from_function(step), Shape(2, 70, 2, 3, 5)
    a = arguments_of(cell, shape)[0]
    want = scan_checks.results_and_gradients(cell, "reference", a)
    scan_checks.assert_close(scan_checks.results_and_gradients(cell, "chunkwise", a), want, torch.float64, shape)


@pytest.mark.parametrize("step", FORMS, ids=lambda f: getattr(f, "__name__", ""))
def test_decays_and_rates_may_be_0_and_1(step):
    """No division by a decay, and no overflow of products of decays."""
    cell, shape = Cell.from_function(step), Shape(1, 70, 1, 4, 3)
    a = scan_checks.arguments(cell, shape)
    small = {"decay", "column_decay", "row_decay", "momentum", "route"} & {*cell.Inputs._fields}
    decays = {n: torch.exp(-20 * torch.rand_like(getattr(a.inputs, n)) ** 3) for n in small}
    for x in decays.values():
        x[:, 40:45] = x[:, 40:45].round()
    a = a._replace(inputs=a.inputs._replace(**decays), reset=None)
    want = scan_checks.results_and_gradients(cell, "reference", a)
    got = scan_checks.results_and_gradients(cell, "chunkwise", a)
    scan_checks.assert_close(got, want, torch.float64, shape)


@pytest.mark.parametrize(("step", "form"), FORMS.items(), ids=lambda x: getattr(x, "__name__", ""))
def test_explain_names_the_form(step, form):
    cell = Cell.from_function(step)
    a = scan_checks.arguments(cell, SHAPES[0])
    assert f"chunkwise  could run: {form}\n" in str(explain(cell, a.inputs, a.state, params=a.params))


def test_kernels_for_state_passing_get_supported_decays_only(monkeypatch):
    """A decay of the rows, or a matrix that mixes coupled states, requires the loop."""
    kernels = object()
    monkeypatch.setattr(state_passing, "state_passing_for", lambda device: kernels)
    S = torch.empty(1, 4, 6, device="meta")
    values, ends, decays = S[None], S[None], torch.ones(1, 1, 1, 6)
    for decay, factors, implementation in [
        (1.0, COLUMNS, kernels),
        (decays[..., :1], COLUMNS, kernels),
        (decays, COLUMNS, kernels),
        (decays.expand(1, 1, 4, 6), COLUMNS, loop),
        (decays[..., :4], ColumnBlocks(2), loop),
        (1.0, ColumnBlocks(2), kernels),
    ]:
        maps = ChunkMaps(None, None, decay, None, values, ends, factors)
        assert state_passing._implementation(maps, S) is implementation


@pytest.mark.parametrize(
    "step", [short_convolution, decay_by_rows_and_columns, momentum, recurrent_reader], ids=lambda f: f.__name__
)
def test_kinds_compile_as_one_graph(step):
    cell = Cell.from_function(step)
    a = scan_checks.arguments(cell, SHAPES[0])
    want = scan_checks.run(cell, "chunkwise", a)[0]
    compiled = torch.compile(lambda: scan_checks.run(cell, "chunkwise", a)[0], fullgraph=True, backend="aot_eager")
    scan_checks.assert_close({"y": compiled()}, {"y": want}, torch.float64)
